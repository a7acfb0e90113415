package foreign

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// role is what a key of a form means.
type role int

const (
	roleHTTP role = iota + 1
	roleHTTPS
	roleNoProxy
	roleCA
	roleEnabled
)

// keys are those of a form.
type keys map[string]role

func aksKeys() keys {
	return keys{
		"httpProxy": roleHTTP, "httpsProxy": roleHTTPS, "noProxy": roleNoProxy, "trustedCa": roleCA, "trustedCA": roleCA,
		"enabled": roleEnabled,
	}
}

func tkgKeys() keys {
	return keys{
		"TKG_HTTP_PROXY": roleHTTP, "TKG_HTTPS_PROXY": roleHTTPS, "TKG_NO_PROXY": roleNoProxy, "TKG_PROXY_CA_CERT": roleCA,
		"TKG_HTTP_PROXY_ENABLED": roleEnabled,
	}
}

// proxyKeys are those of Helm values and of topology variables, which have many authors.
func proxyKeys() keys {
	return keys{
		"http": roleHTTP, "httpProxy": roleHTTP, "https": roleHTTPS, "httpsProxy": roleHTTPS, "noProxy": roleNoProxy,
		"additionalNo": roleNoProxy, "enabled": roleEnabled,
	}
}

func eksKeys() keys {
	return keys{"httpProxy": roleHTTP, "httpsProxy": roleHTTPS, "noProxy": roleNoProxy}
}

// document reads one document in every form.
func (r *reader) document(n *node) error {
	apiVersion, kind := n.get("apiVersion").scalar(), n.get("kind").scalar()
	group, _, _ := strings.Cut(apiVersion, "/")
	switch {
	case kind == "List":
		for _, item := range n.get("items").orEmpty().items {
			if err := r.document(item); err != nil {
				return err
			}
		}
		return nil
	case apiVersion == "v1" && (kind == "Secret" || kind == "ConfigMap"):
		return r.packed(n)
	case kind == "Cluster" && group == "cluster.x-k8s.io":
		return r.topology(n)
	case kind == "Cluster" && group == "anywhere.eks.amazonaws.com":
		r.names(n)
		s := settings{bare: true}
		return r.mapping(s, formEKSA, "spec.proxyConfiguration", n.get("spec", "proxyConfiguration"), eksKeys())
	case apiVersion != "" && kind != "":
		return r.anywhere("", n)
	}
	if err := r.values("", n); err != nil {
		return err
	}
	for key, role := range aksKeys() {
		if role != roleEnabled && n.get(key) != nil {
			return r.mapping(settings{}, formAKS, "the configuration", n, aksKeys())
		}
	}
	return nil
}

// values reads what is not an object of Kubernetes: variables of TKG, Helm values, and what may be anywhere.
func (r *reader) values(prefix string, n *node) error {
	if err := r.tkg(prefix, n); err != nil {
		return err
	}
	for _, keys := range [][]string{{"proxy"}, {"cluster", "proxy"}, {"global", "connectivity", "proxy"}} {
		if at := n.get(keys...); at.isMapping() {
			if err := r.mapping(settings{}, formHelm, prefix+strings.Join(keys, "."), at, proxyKeys()); err != nil {
				return err
			}
		}
	}
	return r.anywhere(prefix, n)
}

// tkg reads the variables of a TKG cluster configuration.
func (r *reader) tkg(prefix string, n *node) error {
	found := &node{kind: n.kind}
	told := false
	for _, f := range n.fields {
		role := tkgKeys()[f.key]
		told = told || role != 0 && role != roleEnabled
		// Other variables of the configuration do not concern the proxy.
		if role != 0 || strings.HasPrefix(f.key, "TKG_") && strings.Contains(f.key, "PROXY") {
			found.fields = append(found.fields, f)
		}
	}
	if !told && n.get("TKG_HTTP_PROXY_ENABLED") == nil {
		return nil
	}
	for key, to := range map[string]*string{"CLUSTER_NAME": &r.cluster, "NAMESPACE": &r.namespace} {
		if text := n.get(key).scalar(); text != "" {
			*to = text
		}
	}
	r.network.pods = split(n.get("CLUSTER_CIDR").scalar())
	r.network.services = split(n.get("SERVICE_CIDR").scalar())
	return r.mapping(settings{}, formTKG, prefix+"the configuration", found, tkgKeys())
}

// packed reads the values in a Secret or ConfigMap.
func (r *reader) packed(n *node) error {
	r.names(n)
	name := n.get("metadata", "name").scalar()
	r.cluster = ""
	for _, suffix := range []string{"-config-values", "-cluster-values", "-systemd-proxy"} {
		if cluster, found := strings.CutSuffix(name, suffix); found {
			r.cluster = cluster
		}
	}
	for _, part := range []string{"data", "stringData"} {
		for _, f := range n.get(part).orEmpty().fields {
			text := f.value.scalar()
			if n.get("kind").scalar() == "Secret" && part == "data" {
				decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
				if err != nil {
					return fmt.Errorf("%s.%s is not base64", part, f.key)
				}
				text = string(decoded)
			}
			if err := r.text(part, f.key, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// text reads a text inside a Secret or ConfigMap.
func (r *reader) text(part, key, text string) error {
	place := part + "." + key
	if serviceSection.MatchString(text) {
		return r.dropIn(place, text)
	}
	documents, err := parse([]byte(text))
	if err != nil {
		if key == "value" || key == "values" || path.Ext(key) == ".yaml" {
			return fmt.Errorf("%s: %w", place, err)
		}
		return nil // a certificate, a token, anything
	}
	all := &node{}
	for _, document := range documents {
		if document.isMapping() {
			all.kind, all.fields = document.kind, append(all.fields, document.fields...)
		}
	}
	return r.values(place+": ", all)
}

// topology reads the variables of a Cluster, and its network.
func (r *reader) topology(n *node) error {
	r.names(n)
	network := n.get("spec", "clusterNetwork")
	r.network.pods = texts(network.get("pods", "cidrBlocks"))
	r.network.services = texts(network.get("services", "cidrBlocks"))
	r.network.domain = network.get("serviceDomain").scalar()
	r.network.endpoint = n.get("spec", "controlPlaneEndpoint", "host").scalar()
	for _, variable := range n.get("spec", "topology", "variables").orEmpty().items {
		value := variable.get("value")
		place := "variable " + variable.get("name").scalar()
		switch variable.get("name").scalar() {
		case "proxy":
		case "clusterConfig":
			value, place = value.get("proxy"), place+".proxy"
		default:
			continue
		}
		if err := r.mapping(settings{}, formTopology, place, value, proxyKeys()); err != nil {
			return err
		}
	}
	return nil
}

// names reads which Cluster an object belongs to.
func (r *reader) names(n *node) {
	r.cluster, r.namespace = n.get("metadata", "name").scalar(), n.get("metadata", "namespace").scalar()
}

// anywhere reads what may be at any depth: httpProxyConfig, files of a bootstrap spec, and lists of variables.
func (r *reader) anywhere(prefix string, n *node) error {
	for _, f := range n.fields {
		place := prefix + f.key
		if f.key == "httpProxyConfig" && f.value.isMapping() {
			if err := r.mapping(settings{}, formAKS, place, f.value, aksKeys()); err != nil {
				return err
			}
		}
		if err := r.anywhere(place+".", f.value); err != nil {
			return err
		}
		if err := r.list(place, f.value.items); err != nil {
			return err
		}
	}
	for i, item := range n.items {
		if err := r.anywhere(fmt.Sprintf("%s[%d].", strings.TrimSuffix(prefix, "."), i), item); err != nil {
			return err
		}
	}
	return nil
}

// list reads the items of a list as files, and as variables of a container.
func (r *reader) list(place string, items []*node) error {
	var vars []envfile.Var
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", place, i)
		if file := item.get("path").scalar(); path.Base(file) == "http-proxy.conf" {
			if err := r.file(at, item); err != nil {
				return err
			}
		}
		name := item.get("name").scalar()
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
			if item.get("value") == nil {
				return fmt.Errorf("%s: the value of %s is somewhere else; read it there", at, name)
			}
			vars = append(vars, envfile.Var{Name: name, Value: item.get("value").scalar()})
		}
	}
	return r.variables(formHelm, place, vars)
}

// file reads a drop-in among the files of a bootstrap spec.
func (r *reader) file(place string, file *node) error {
	text := file.get("content").scalar()
	if source := file.get("contentFrom"); source != nil {
		return fmt.Errorf("%s: the content is in key %s of Secret %s; read that Secret", place,
			source.get("secret", "key").scalar(), source.get("secret", "name").scalar())
	}
	switch encoding := file.get("encoding").scalar(); encoding {
	case "":
	case "base64":
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return fmt.Errorf("%s: the content is not base64", place)
		}
		text = string(decoded)
	default:
		return fmt.Errorf("%s: the content is encoded as %s; write it as text", place, encoding)
	}
	return r.dropIn(place, text)
}

// mapping reads the settings of a mapping whose keys have roles.
func (r *reader) mapping(s settings, form, place string, n *node, known keys) error {
	if !n.isMapping() {
		return nil
	}
	s.form, s.place = form, place
	for _, f := range n.fields {
		var err error
		key := f.key
		role := known[key]
		if role != roleNoProxy && role != 0 && (len(f.value.items) > 0 || len(f.value.fields) > 0) {
			return fmt.Errorf("%s.%s is not a text", place, key)
		}
		text := f.value.scalar()
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") && form == formAKS {
			return fmt.Errorf("%s.%s is an expression of the template; write its value", place, key)
		}
		switch role {
		case roleHTTP:
			err = s.set(&s.http, key, text)
		case roleHTTPS:
			err = s.set(&s.https, key, text)
		case roleCA:
			err = s.set(&s.ca, key, text)
		case roleNoProxy:
			err = s.setNoProxy(key, append(split(text), texts(f.value)...))
		case roleEnabled:
			if strings.EqualFold(text, "false") {
				s.off = key + ": " + text
			}
		default:
			s.unplaced = append(s.unplaced, key)
		}
		if err != nil {
			return err
		}
	}
	r.found = append(r.found, s)
	return nil
}

// texts returns the entries of a list, each of which may be a list in one text.
func texts(n *node) []string {
	var out []string //nolint:prealloc // an item may be a list
	for _, item := range n.orEmpty().items {
		out = append(out, split(item.scalar())...)
	}
	return out
}

// orEmpty returns n, or a node without content if it is nil.
func (n *node) orEmpty() *node {
	if n == nil {
		return &node{}
	}
	return n
}
