package clusters

import (
	"fmt"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// read parses inputs. What it cannot parse is a problem if it concerns objects that the product reads, else a note.
func (m *Manifests) read(inputs []Input) (streams []*manifest.Stream, problems []error) {
	for _, input := range inputs {
		stream, err := manifest.Parse(input.Name, input.Data)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		streams = append(streams, stream)
		for _, d := range stream.Defects() {
			concerned := false
			for _, o := range d.Objects {
				concerned = concerned || isRead(o)
			}
			if concerned {
				problems = append(problems, fmt.Errorf("parsing %s: %s", d.Place, d.Cause))
			} else {
				m.Notes = append(m.Notes, d.Place+": "+d.Cause+"; left as it is")
			}
		}
	}
	return streams, append(problems, twice(objectsOf(streams))...)
}

// objectsOf returns the objects of streams in order.
func objectsOf(streams []*manifest.Stream) []*manifest.Object {
	var objects []*manifest.Object
	for _, stream := range streams {
		objects = append(objects, stream.Objects()...)
	}
	return objects
}

// isRead reports whether the product edits objects of this kind, or reads them to decide.
func isRead(o *manifest.Object) bool {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	switch group {
	case GroupCluster, GroupControlPlane, GroupBootstrap:
		return true
	}
	return o.Kind() == "Secret" && o.APIVersion() == "v1"
}

// twice returns an error for each duplicate among the objects that the product reads and those of infrastructure
// providers: one of them would be ignored.
func twice(objects []*manifest.Object) []error {
	type key struct{ group, kind, namespace, name string }
	seen := map[key]*manifest.Object{}
	var problems []error
	for _, o := range objects {
		group, _, _ := strings.Cut(o.APIVersion(), "/")
		if o.Name() == "" || !isRead(o) && !strings.HasSuffix(group, "."+GroupCluster) {
			continue
		}
		k := key{group, o.Kind(), manifest.SameName(o.Namespace()), manifest.SameName(o.Name())}
		if first := seen[k]; first != nil {
			problems = append(problems, fmt.Errorf("%s: line %d: it already occurs in %s: document %d, line %d; "+
				"remove one of them", Place(o), o.Line(), first.File(), first.Document(), first.Line()))
			continue
		}
		seen[k] = o
	}
	return problems
}

// API groups of the kinds that the product reads.
const (
	GroupCluster      = "cluster.x-k8s.io"
	GroupControlPlane = "controlplane.cluster.x-k8s.io"
	GroupBootstrap    = "bootstrap.cluster.x-k8s.io"
)

// Place names an object with its file and document.
func Place(o *manifest.Object) string {
	return fmt.Sprintf("%s: document %d: %s", o.File(), o.Document(), o)
}

// Also ends a message that is true for other objects, too. It is "" if there are none.
func Also(others []*manifest.Object) string {
	if len(others) == 0 {
		return ""
	}
	names := make([]string, len(others))
	for i, o := range others {
		names[i] = o.String()
	}
	return " (also " + finding.Few(names) + ")"
}
