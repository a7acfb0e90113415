// Package foreign reads the proxy settings of other systems and makes the data of a proxy Secret of them. It is pure.
//
// Every input becomes leaves, each with a path and a text (read.go). A table says what a path means (forms.go). Errors
// and notes give lines and keys of the table. They show no value and no other key, because either may be a credential.
package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
)

// Result has the settings that were read.
type Result struct {
	// Data is the data of a proxy Secret. It is not validated, and holds the credentials of the proxy.
	Data map[string]string
	// Cluster and Namespace are those of the Cluster that the text is about, "" if it names none.
	Cluster, Namespace string
	// Notes name what of the text is not in Data, or changed, and why.
	Notes []string
}

// reader has the values that were read so far, by their meaning, and how many more bytes may be read.
type reader struct {
	rows   []row
	values map[string][]value
	notes  []string
	left   int
}

type value struct{ text, place string }

var (
	errNone = errors.New("no proxy settings of a known form (docs/reference.md); give the Secret or file that has them")
	// hostPort is a URL without its scheme, packedName the name of a Secret or ConfigMap that begins with its Cluster's.
	hostPort   = regexp.MustCompile(`^[^\s/{}<>$]+:[0-9]+$`)
	packedName = regexp.MustCompile(`^(.*)-(config-values|cluster-values|systemd-proxy)$`)
)

// Read reads a text of at most 16 MiB in any of the known forms. URLs and names must be the same in all places. Lists
// and certificates are joined.
func Read(text []byte) (Result, error) {
	r, texts := reader{rows: rows(), values: map[string][]value{}, left: maxSize}, map[string]string{}
	if err := r.text("", string(text)); err != nil {
		return Result{}, err
	}
	for _, meaning := range slices.Sorted(maps.Keys(r.values)) {
		var all []string
		first := r.values[meaning][0]
		for _, v := range r.values[meaning] {
			if v.text != first.text && slices.Contains(strings.Fields("httpProxy httpsProxy cluster namespace"), meaning) {
				return Result{}, fmt.Errorf("%s and %s have different values; keep one", first.place, v.place)
			}
			all = append(all, v.text)
		}
		texts[meaning] = strings.Join(slices.Compact(all), "\n")
	}
	result := Result{Data: map[string]string{}, Cluster: texts["cluster"], Namespace: texts["namespace"], Notes: r.notes}
	result.Data[contract.KeyTrustedCA] = strings.TrimLeft(texts[contract.KeyTrustedCA]+"\n", "\n")
	endpoints := slices.Collect(noproxy.Items(texts[contract.KeyReadinessEndpoints]))
	result.Data[contract.KeyReadinessEndpoints] = strings.Join(endpoints, ",")
	result.setURLs(texts)
	result.setNoProxy(texts[contract.KeyNoProxy])
	if maps.DeleteFunc(result.Data, func(_, text string) bool { return text == "" }); len(result.Data) == 0 {
		return Result{}, errNone
	}
	return result, nil
}

// collect takes the values of one document. The keys enabled and unused come last: they matter where there are others.
func (r *reader) collect(kind string, leaves []leaf) error {
	inUse := map[string]bool{}
	for i := range 2 * len(leaves) {
		l, last := leaves[i%len(leaves)], i >= len(leaves)
		w, text := r.find(kind, l.path), strings.TrimSpace(l.text)
		if w.meaning == "" || text == "" && l.problem == "" || last != (w.meaning == "enabled" || w.meaning == "unused") {
			continue
		}
		mapping := fmt.Sprintf("%s %q", w.form, l.path[:len(l.path)-w.depth])
		place := fmt.Sprintf("%s: %s (%s)", l.place, strings.Replace(w.key, "*", "this key", 1), w.form)
		switch name := packedName.FindStringSubmatch(text); {
		case w.meaning == "unused" && inUse[mapping]:
			r.notes = append(r.notes, place+" has no place in a proxy Secret")
			continue
		case last && !inUse[mapping]:
			continue
		case l.problem != "" || w.meaning == "elsewhere":
			return fmt.Errorf("%s %s", place, cmp.Or(l.problem, "names another object: remove it and add its value yourself"))
		case w.meaning == "enabled" && strings.EqualFold(text, "false"):
			return fmt.Errorf("%s is false, which switches the proxy off; change that to read the settings", place)
		case w.meaning == "packed" && name != nil:
			w.meaning, text = "cluster", name[1]
		case w.meaning == contract.KeyTrustedCA:
			text = strings.TrimSpace(decode(text))
		}
		inUse[mapping] = true
		r.values[w.meaning] = append(r.values[w.meaning], value{text, place})
	}
	return nil
}

// find returns the row of a path in a document of a kind, an empty one if there is none.
func (r *reader) find(kind string, path []string) row {
	i := slices.IndexFunc(r.rows, func(w row) bool {
		at := path
		if w.kind == "any" {
			at = path[max(0, len(path)-len(w.path)):]
		}
		return (w.kind == "any" || w.kind == cmp.Or(kind, "none")) &&
			slices.EqualFunc(w.path, at, func(want, key string) bool { return want == "*" || want == key })
	})
	if i < 0 || kind != "" && path[0] == "status" {
		return row{}
	}
	return r.rows[i]
}

// setURLs adds missing schemes. User and password become keys, if these can hold them and all URLs have the same.
func (r *Result) setURLs(texts map[string]string) {
	bare, users := map[string]string{}, map[url.Userinfo]bool{}
	for _, key := range []string{contract.KeyHTTPProxy, contract.KeyHTTPSProxy} {
		text := strings.TrimSuffix(texts[key], "/")
		if hostPort.MatchString(text) {
			text = "http://" + text
			r.Notes = append(r.Notes, key+" has no scheme; http:// is added")
		}
		if u, err := url.Parse(text); err == nil && u.User != nil && strings.Count(text, "@") == 1 {
			users[*u.User] = true
			bare[key] = u.Scheme + "://" + text[strings.Index(text, "@")+1:]
		} else if text != "" {
			users[url.Userinfo{}] = true
		}
		r.Data[key] = text
	}
	for user := range users {
		name := user.Username()
		password, given := user.Password()
		bare[contract.KeyUsername], bare[contract.KeyPassword] = name, password
		if len(users) == 1 && name != "" && !strings.ContainsAny(name, ":\r\n") && given == (password != "") {
			maps.Copy(r.Data, bare)
		}
	}
}

// setNoProxy joins the lists. Entries that every Cluster has anyway are left out.
func (r *Result) setNoProxy(list string) {
	in := noproxy.Input{OmitGroups: []noproxy.Group{noproxy.GroupServices, noproxy.GroupServiceAddresses}}
	composed, err := noproxy.Compose(in)
	var kept []string
	for entry := range noproxy.Items(list) {
		in.User.Text = entry
		with, errWith := noproxy.Compose(in)
		note := "noProxy: " + entry + " is left out, because it is composed anyway"
		if known := err == nil && errWith == nil && with.Value == composed.Value; known && !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		} else if !known && !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
	}
	r.Data[contract.KeyNoProxy] = strings.Join(kept, ",")
}
