package kinds

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Host is a host that a bootstrap spec names. Public registries are none: the proxy reaches them.
type Host struct {
	// Place is the first one where the spec names the host.
	Place finding.Place
	// URL has its scheme, its name and its port.
	URL string
	// What describes it, for example "mirror of docker.io".
	What string
	// Target is the one by which its client gets the proxy: containerd, or static-pods for kube-apiserver.
	Target contract.Target
	// Outside reports that it is an OIDC issuer or a webhook, which may be anywhere.
	Outside bool
}

const (
	// maxContent is the length of the longest file that is read for hosts, in bytes.
	maxContent = 64 << 10
	// maxHosts is how many hosts of a bootstrap spec are used.
	maxHosts = 100
)

var (
	public = regexp.MustCompile(`(^|\.)(docker\.io|k8s\.io|gcr\.io|pkg\.dev|quay\.io|ghcr\.io|mcr\.microsoft\.com|` +
		`azurecr\.io|public\.ecr\.aws|amazonaws\.com|nvcr\.io|icr\.io|redhat\.(io|com)|gitlab\.com)(:443)?$`)
	comment    = regexp.MustCompile(`(?m)^\s*#.*$`)
	asked      = regexp.MustCompile(`\b(server|url|discoveryURL|kubeConfigFile)["']?\s*:\s*["']?([^\s"',}]+)`)
	configured = regexp.MustCompile(`\b(?:sandbox|sandbox_image|endpoint)\s*=\s*\[?\s*["']([^"'\n]+)`)
	mirrors    = regexp.MustCompile(`(?m)^\s*\[\s*host\s*\.\s*["']([^"'\n]+)`)
	images     = regexp.MustCompile(`\bimage["']?\s*:\s*["']?([^\s"',}]+)`)
	// pulled finds what containerd asks, in files at a path. {} is the folder of a file, after completes a host to an
	// image.
	pulled = []struct { //nolint:gochecknoglobals // a constant
		path, what, after string
		find              *regexp.Regexp
	}{
		{"/etc/containerd/certs.d/*/hosts.toml", "mirror of {}", "/", mirrors},
		{"/etc/containerd/*.toml", "registry of {}", "", configured},
		{"/etc/containerd/conf.d/*", "registry of {}", "", configured},
		{"/etc/kubernetes/manifests/*", "image of a static Pod", "", images},
	}
)

// walk collects the hosts that a bootstrap spec names.
type walk struct {
	hosts []Host
	// reads are paths of files that components read.
	reads []string
	// own reports that kube-apiserver has proxy variables of its own.
	own bool
}

// add adds the host of a URL or of an image, unless it is known.
func (w *walk) add(h Host, value string) {
	scheme, rest, isURL := strings.Cut(value, "://")
	if !isURL {
		scheme, rest = "https", value
	}
	host, _, more := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	h.URL = scheme + "://" + host
	if (isURL || more && strings.ContainsAny(host, ".:")) && (h.Outside || !public.MatchString(host)) &&
		len(w.hosts) < maxHosts &&
		!slices.ContainsFunc(w.hosts, func(k Host) bool { return k.URL == h.URL && k.Outside == h.Outside }) {
		w.hosts = append(w.hosts, h)
	}
}

// field reads a value of a configuration of kubeadm. name is that of the field or of the argument.
func (w *walk) field(at finding.Place, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if argument, isArgument := v["name"].(string); isArgument {
			w.field(at, argument, v["value"])
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.field(at.Child(key), key, v[key])
		}
	case []any:
		for i, item := range v {
			w.field(at.Index(i), name, item)
		}
	case string:
		switch {
		case name == "imageRepository":
			w.add(Host{Place: at, What: "registry of kubeadm", Target: contract.TargetContainerd}, v+"/")
		case name == "pod-infra-container-image":
			w.add(Host{Place: at, What: "pause image", Target: contract.TargetContainerd}, v)
		case name == "endpoints":
			w.add(Host{Place: at, What: "external etcd", Target: contract.TargetStaticPods}, v)
		case name == "oidc-issuer-url":
			w.add(Host{Place: at, What: "OIDC issuer", Target: contract.TargetStaticPods, Outside: true}, v)
		case strings.HasPrefix(v, "/"):
			w.reads = append(w.reads, v)
		}
		w.own = w.own || strings.HasSuffix(strings.ToLower(name), "s_proxy")
	}
}

// file reads a file whose content is neither encoded nor in a Secret. It reports whether it looks at the content.
func (w *walk) file(at finding.Place, f *bootstrapv1.File) (reads bool) {
	if fileOf(f).Other || len(f.Content) > maxContent {
		return false
	}
	for _, p := range pulled {
		if matches, _ := path.Match(p.path, path.Clean(f.Path)); !matches {
			continue
		}
		reads = true
		what := strings.ReplaceAll(p.what, "{}", path.Base(path.Dir(f.Path)))
		h := Host{Place: at, What: what, Target: contract.TargetContainerd}
		for _, match := range p.find.FindAllStringSubmatch(comment.ReplaceAllString(f.Content, ""), -1) {
			w.add(h, match[1]+p.after)
		}
	}
	if slices.Contains(w.reads, f.Path) {
		reads = true
		h := Host{Place: at, What: "issuer or webhook", Target: contract.TargetStaticPods, Outside: true}
		for _, match := range asked.FindAllStringSubmatch(comment.ReplaceAllString(f.Content, ""), -1) {
			if w.reads = append(w.reads, match[2]); strings.Contains(match[2], "://") {
				w.add(h, match[2])
			}
		}
	}
	return reads
}

// spec reads a bootstrap spec. It returns the indexes of the files at whose contents it looks.
func (w *walk) spec(spec *bootstrapv1.KubeadmConfigSpec) (read map[int]bool) {
	for _, part := range []struct {
		name  string
		value any
	}{
		{"clusterConfiguration", &spec.ClusterConfiguration},
		{"initConfiguration", &spec.InitConfiguration},
		{"joinConfiguration", &spec.JoinConfiguration},
	} {
		var value any
		if text, err := json.Marshal(part.value); err == nil {
			_ = json.Unmarshal(text, &value)
		}
		w.field(finding.Field(part.name), part.name, value)
	}
	read = map[int]bool{}
	for n := range 2 * len(spec.Files) { // twice, because a file may name an earlier one
		i := n % len(spec.Files)
		read[i] = w.file(finding.Field("files").Index(i), &spec.Files[i]) || read[i]
	}
	return read
}

// Hosts returns the hosts that a bootstrap spec names.
func Hosts(spec *bootstrapv1.KubeadmConfigSpec) []Host {
	var w walk
	w.spec(spec)
	return slices.DeleteFunc(w.hosts, func(h Host) bool { return w.own && h.Target == contract.TargetStaticPods })
}
