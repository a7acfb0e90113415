package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// generatedSecret is a Secret that patched objects refer to.
type generatedSecret struct {
	cluster *manifest.Object
	view    settings.Cluster
	name    string
	// resolution is nil if values of the proxy Secret are not known.
	resolution *settings.Resolution
	unresolved []finding.Place
}

// generate records a Secret that is needed.
func (c *clusterRun) generate(name string, resolution *settings.Resolution) {
	key := secretKey{c.object, name}
	if c.needed[key] {
		return
	}
	c.needed[key] = true
	c.generated = append(c.generated, generatedSecret{
		cluster: c.object, view: c.view, name: name, resolution: resolution, unresolved: c.unresolved,
	})
}

// writeSecrets updates the generated Secrets of the input and returns the others as a stream. Without IncludeSecrets it
// only counts them.
func (r *renderer) writeSecrets() ([]byte, error) {
	var stream []byte
	for _, g := range r.generated {
		if !r.IncludeSecrets {
			r.usual.secrets = append(r.usual.secrets, kit.Qualified(g.view.Namespace, g.name))
			continue
		}
		existing := r.FindSecret(types.NamespacedName{Namespace: g.view.Namespace, Name: g.name})
		if !r.isPrinted(g, existing != nil) {
			continue
		}
		data, err := encodedData(g)
		if err != nil {
			return nil, err
		}
		if existing != nil {
			edits, err := updateSecret(existing, data, g)
			if err != nil {
				return nil, err
			}
			r.edits[existing] = edits
			continue
		}
		text, err := newSecret(g, data, r.isJSON())
		if err != nil {
			return nil, err
		}
		stream = append(stream, text...)
	}
	return stream, nil
}

// isPrinted reports whether a generated Secret is to be printed. Nodes that start with a Secret without the endpoint
// reach the endpoint through the proxy.
func (r *renderer) isPrinted(g generatedSecret, exists bool) bool {
	missing := missingNetwork(g.unresolved, *g.resolution)
	switch {
	case missing == "":
		return true
	case r.IncompleteSecrets:
		r.warn(g.cluster, "Secret %s is printed although %s; nodes use the proxy for what NO_PROXY lacks", g.name, missing)
		return true
	case exists:
		r.warn(g.cluster, "Secret %s stays as it is, because %s", g.name, missing)
	default:
		r.warn(g.cluster,
			"Secret %s is left out, because %s; new nodes wait until the controller generates it, or until you set "+
				"that and render again; --incomplete-secrets prints it anyway", g.name, missing)
	}
	return false
}

// updateSecret returns the edits that update a generated Secret of the input.
func updateSecret(o *manifest.Object, data map[string]string, g generatedSecret) ([]manifest.Edit, error) {
	if manifest.SameName(o.Labels()[contract.LabelGenerated]) != manifest.SameName(g.view.Name) {
		return nil, fmt.Errorf("%s: it has the name of a generated Secret but was not generated for Cluster %s; rename it",
			clusters.Place(o), g.view.Name)
	}
	for key := range data {
		if current, _ := clusters.Dig(o.Value(), "data")[key].(string); strings.HasPrefix(current, "ENC[") {
			return nil, fmt.Errorf("%s: it is encrypted; decrypt it first, or leave it out of the input", clusters.Place(o))
		}
	}
	var edits []manifest.Edit
	set := func(current any, path ...string) func(string) {
		return func(value string) {
			if current != value {
				edits = append(edits, manifest.Edit{Op: manifest.SetScalar, Path: path, Value: value})
			}
		}
	}
	value := o.Value()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		set(clusters.Dig(value, "data")[key], "data", key)(data[key])
	}
	annotations := settings.SecretAnnotations(*g.resolution)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		set(clusters.Dig(value, "metadata", "annotations")[key], "metadata", "annotations", key)(annotations[key])
	}
	label := contract.LabelProxySecret
	set(clusters.Dig(value, "metadata", "labels")[label], "metadata", "labels", label)("")
	return edits, nil
}

func encodedData(g generatedSecret) (map[string]string, error) {
	data, err := settings.SecretData(*g.resolution)
	if err != nil {
		return nil, err
	}
	encoded := map[string]string{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	return encoded, nil
}

// isJSON reports whether all inputs are JSON, so that the output is to be JSON as well.
func (r *renderer) isJSON() bool {
	return !slices.ContainsFunc(r.Streams, func(s *manifest.Stream) bool { return !s.IsJSON() })
}

// newSecret returns a generated Secret as a separate document.
func newSecret(g generatedSecret, data map[string]string, asJSON bool) ([]byte, error) {
	metadata := map[string]any{
		"name": g.name, "labels": settings.SecretLabels(g.view), "annotations": settings.SecretAnnotations(*g.resolution),
	}
	if g.view.Namespace != "" {
		metadata["namespace"] = g.view.Namespace
	}
	secret := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
	var text []byte
	var err error
	if asJSON {
		text, err = json.Marshal(secret)
		text = append(text, '\n')
	} else {
		text, err = yaml.Marshal(secret)
		text = append([]byte("---\n"), text...)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding Secret %s: %w", g.name, err)
	}
	return text, nil
}
