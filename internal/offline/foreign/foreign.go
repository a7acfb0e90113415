// Package foreign reads the proxy settings of other systems and makes the data of a proxy Secret of them. It is pure,
// and no text that it returns beside that data holds a credential.
package foreign

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// Result is what was read.
type Result struct {
	// Data is the data of a proxy Secret, which proxyconfig.Parse accepts. It holds the credentials of the proxy.
	Data map[string]string
	// Cluster and Namespace are those of the Cluster that the text is about, "" if it tells none.
	Cluster, Namespace string
	// Notes say what of the text is not in Data, and why.
	Notes []string
}

// errUnknown is the error for a text without proxy settings.
var errUnknown = errors.New("no proxy settings of a known form; known are httpProxyConfig of AKS, bare or in an ARM " +
	"template, TKG_HTTP_PROXY and its like, Helm values (proxy, cluster.proxy, global.connectivity.proxy or env lists), " +
	"the variables proxy and clusterConfig of a Cluster's topology, proxyConfiguration of EKS Anywhere, " +
	"a http-proxy.conf drop-in or the files of a bootstrap spec, and the variables of a shell (--from env)")

// serviceSection begins the settings of a drop-in that is the whole text.
var serviceSection = regexp.MustCompile(`(?m)^\[Service\][ \t\r]*$`)

// Read reads a text in any of the known forms. Two forms in one text are an error, and so are two places of one form
// with different settings. The error names places and keys, never values.
func Read(text []byte) (Result, error) {
	var r reader
	if serviceSection.Match(text) {
		if err := r.dropIn("the drop-in", string(text)); err != nil {
			return Result{}, err
		}
		return r.result()
	}
	documents, err := parse(text)
	if err != nil {
		return Result{}, err
	}
	for _, document := range documents {
		if err := r.document(document); err != nil {
			return Result{}, err
		}
	}
	return r.result()
}

// ReadVariables reads environment variables. Those that do not concern a proxy are ignored.
func ReadVariables(vars []envfile.Var) (Result, error) {
	var r reader
	if err := r.variables(formVariables, "the environment", vars); err != nil {
		return Result{}, err
	}
	return r.result()
}

// Forms, as errors call them.
const (
	formAKS       = "AKS httpProxyConfig"
	formTKG       = "TKG variables"
	formHelm      = "Helm values"
	formTopology  = "topology variable"
	formEKSA      = "EKS Anywhere proxyConfiguration"
	formDropIn    = "drop-in"
	formVariables = "environment variables"
)

// reader collects what the forms find.
type reader struct {
	found []settings
	// cluster and namespace are told by the text, network is that of its Cluster.
	cluster, namespace string
	network            network
}

// network is what the text tells of the Cluster's network.
type network struct {
	pods, services   []string
	domain, endpoint string
}

// result makes one result of everything that was found.
func (r *reader) result() (Result, error) {
	if len(r.found) == 0 {
		return Result{}, errUnknown
	}
	first := r.found[0]
	for _, other := range r.found[1:] {
		if other.form != first.form {
			return Result{}, fmt.Errorf("%s (%s) and %s (%s) are both in it; give one of them", first.form, first.place,
				other.form, other.place)
		}
		if !other.equal(first) {
			return Result{}, fmt.Errorf("%s and %s have different settings; give one of them", first.place, other.place)
		}
	}
	if first.off != "" {
		return Result{}, fmt.Errorf("%s: the proxy is switched off by %s; change that to read the settings",
			first.place, first.off)
	}
	data, notes, err := first.secret(r.network)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", first.place, err)
	}
	for _, s := range r.found {
		for _, key := range s.unplaced {
			if note := fmt.Sprintf("%s: key %s has no place in a proxy Secret", s.place, key); !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	for _, name := range []string{r.cluster, r.namespace} {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return Result{}, errors.New("the name or namespace of the Cluster is not one that Kubernetes accepts")
		}
	}
	return Result{Data: data, Cluster: r.cluster, Namespace: r.namespace, Notes: notes}, nil
}

// dropIn reads the text of a drop-in.
func (r *reader) dropIn(place, text string) error {
	vars, err := dropIn(text)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	return r.variables(formDropIn, place, vars)
}

// variables reads variables in either spelling.
func (r *reader) variables(form, place string, vars []envfile.Var) error {
	s := settings{form: form, place: place}
	for _, v := range vars {
		var err error
		switch strings.ToUpper(v.Name) {
		case "HTTP_PROXY":
			err = s.set(&s.http, v.Name, v.Value)
		case "HTTPS_PROXY":
			err = s.set(&s.https, v.Name, v.Value)
		case "NO_PROXY":
			err = s.setNoProxy(v.Name, split(v.Value))
		case "ALL_PROXY", "FTP_PROXY":
			s.unplaced = append(s.unplaced, v.Name)
		}
		if err != nil {
			return err
		}
	}
	if s.http.set || s.https.set || s.noProxy != nil {
		r.found = append(r.found, s)
	}
	return nil
}

// split splits a list at commas and white space.
func split(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(", \t\r\n", c) })
}
