package render

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Publish selects the published values that Render prints.
type Publish struct {
	// Publisher makes them. Nil is a program that publishes nothing.
	Publisher kit.Publisher
	// Wanted prints the values that the controller would write.
	Wanted bool
	// List is the list of outputs of every Cluster. Empty is that of its annotation.
	List string
	// Cluster is the name of the Cluster whose values are printed, or namespace/name. Empty is every Cluster, or the only
	// one if objects for a workload cluster are printed.
	Cluster string
	// Only patches nothing and prints nothing else: for outputs that List names and that are for the workload cluster, its
	// objects as they are delivered; else what is for the management cluster.
	Only bool
}

// Check returns the problem with the list itself, whatever Clusters there are.
func (p Publish) Check() error {
	asks, err := p.asks()
	if found := finding.Of(err); len(found) > 0 {
		return fmt.Errorf("%s; %s", found[0].Message, found[0].Advice)
	}
	if p.Only && asks.ForWorkload && !p.forWorkload() {
		return errors.New("the list has outputs for the management cluster and for the workload cluster; print them one " +
			"after the other")
	}
	return nil
}

// asks returns what List asks for. Its errors come with a Cluster, too.
func (p Publish) asks() (kit.Outputs, error) {
	if p.Publisher == nil {
		return kit.Outputs{}, nil
	}
	return p.Publisher.Asked(nil, p.List)
}

// forWorkload reports whether objects for a workload cluster are printed, and nothing else.
func (p Publish) forWorkload() bool {
	asks, _ := p.asks()
	return p.Only && asks.Count > 0 && !asks.ForManagement
}

// choose returns the only Cluster whose values are printed, nil for all. Objects for a workload cluster do not say
// whose they are, so that those of one Cluster are printed and no others.
func (p Publish) choose(all []*manifest.Object) (*manifest.Object, error) {
	asks, _ := p.asks()
	if !p.Wanted || p.Cluster == "" && !p.forWorkload() && !asks.ForRender {
		return nil, nil //nolint:nilnil // nil is all
	}
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = kit.Qualified(manifest.PartOfName(o.Namespace()), manifest.PartOfName(o.Name()))
	}
	i, err := kit.Choose(names, "", p.Cluster, "--cluster")
	if err != nil {
		return nil, err
	}
	return all[i], nil
}

// isPublished reports whether values of a Cluster are to be printed.
func (r *renderer) isPublished(cluster *manifest.Object) bool {
	return r.Publish.Wanted && r.Publish.Publisher != nil && (r.only == nil || r.only == cluster)
}

// publishOnly prints the outputs of a Cluster if it has the label.
func (r *renderer) publishOnly(ctx context.Context, object *manifest.Object) {
	read := r.Cluster(object)
	switch {
	case !r.All && read.View.Unclear != nil:
		r.reject(object, "%s", read.View.Unclear)
	case !r.All && !read.View.Enabled:
		r.silent = append(r.silent, fmt.Sprintf("%s: it has no label %s: %q", clusters.Place(object), contract.LabelEnabled,
			contract.LabelEnabledValue))
	case read.Invalid != nil:
		r.reject(object, "%s", read.Invalid)
	default:
		c := &clusterRun{
			renderer: r, object: object, view: read.View, options: read.Settings.Options, unresolved: read.Unresolved,
		}
		c.publish(ctx)
	}
}

// publish prints the outputs of a Cluster.
func (c *clusterRun) publish(ctx context.Context) {
	asks, err := c.Publish.Publisher.Asked(c.view.Annotations, c.Publish.List)
	if err != nil {
		c.reject(c.object, "%s", err)
		return
	}
	if asks.Count == 0 {
		c.withdraw(asks)
		c.silent = append(c.silent, fmt.Sprintf("%s: it asks for no output; set annotation %s, or give a list with --publish",
			clusters.Place(c.object), c.Publish.Publisher.Annotation()))
		return
	}
	if c.Publish.Only && !c.Publish.forWorkload() && !asks.ForManagement {
		c.silent = append(c.silent, clusters.Place(c.object)+": its outputs are for its workload cluster; name them with "+
			"--publish=LIST")
		return
	}
	resolver := c.Resolver(c.Now)
	resolver.Profile = noproxy.ProfileShell
	resolution, err := resolver.Resolve(ctx, c.view, c.options, "")
	if note, is := clusters.NotKnown(err); is {
		err = finding.Errors{note}
	}
	if err != nil {
		c.reject(c.object, "%s", err)
		return
	}
	if missing := missingNetwork(c.unresolved, resolution); missing != "" {
		c.warn(c.object, "nothing is published, because %s", missing)
		c.withdraw(asks)
		return
	}
	result, err := asks.Make(kit.PublishInput{
		Cluster: c.view.Name, Namespace: c.view.Namespace, Secret: resolution.Secret.String(),
		Settings: resolution.Settings, NoProxy: resolution.NoProxy.Value, HasNodeNetwork: resolution.NoProxy.HasNodeNetwork,
		Version: c.version(),
	})
	if err != nil {
		c.reject(c.object, "%s", err)
		return
	}
	for _, found := range result.Findings {
		if found.Reason == "" {
			c.note(c.object, "%s", found)
		} else {
			c.warn(c.object, "%s", found)
		}
	}
	c.print(result)
}

// noteSilence notes that nothing is printed, and why if that is not in other notes.
func (r *renderer) noteSilence() {
	text := "nothing is printed"
	switch count := len(r.silent); {
	case len(r.published) > 0:
		return
	case len(r.Find("Cluster")) == 0:
		text += ": the input has no Cluster"
	case count == 1:
		text += ": " + r.silent[0]
	case count > 1:
		text += fmt.Sprintf(": %d Clusters have no label %s: %q, or ask for no output", count, contract.LabelEnabled,
			contract.LabelEnabledValue)
	}
	r.notes.add(nil, text)
}

// print adds published values to the output.
func (c *clusterRun) print(result kit.Published) {
	if c.Publish.forWorkload() {
		for _, stream := range result.Streams {
			c.published = append(c.published, append([]byte("---\n"), stream...))
		}
	} else {
		c.metadata(result.Annotations, result.KeepAnnotations)
		for _, object := range outputSecrets(c.view, result.Secrets) {
			c.add(object)
		}
	}
	for _, object := range result.Objects {
		c.add(object)
	}
}

// add adds an object to the published ones. An object of the input that has its name is updated if an earlier run has
// printed it.
func (c *clusterRun) add(value any) {
	object, _ := value.(map[string]any)
	kind, _ := object["kind"].(string)
	name, _ := clusters.Dig(object, "metadata")["name"].(string)
	existing := c.Lookup(c.view.Namespace, "", kind, name)
	if existing == nil || c.Publish.Only {
		text, err := encodeDocument(object, c.isJSON() && !c.Publish.forWorkload())
		if err != nil {
			c.reject(c.object, "encoding %s %s: %s", kind, name, err)
		}
		c.published = append(c.published, text)
		return
	}
	if manifest.SameName(existing.Labels()[contract.LabelGenerated]) != manifest.SameName(c.view.Name) {
		c.reject(existing, "it has the name of an output and was not written for Cluster %s; rename it", c.view.Name)
		return
	}
	data, _ := object["data"].(map[string][]byte)
	var edits []manifest.Edit
	for _, key := range slices.Sorted(maps.Keys(data)) {
		encoded := base64.StdEncoding.EncodeToString(data[key])
		if clusters.Dig(existing.Value(), "data")[key] != encoded {
			edits = append(edits, manifest.Edit{Op: manifest.SetScalar, Path: []string{"data", key}, Value: encoded})
		}
	}
	c.edits[existing] = edits
}

// version returns the Kubernetes version that the control plane runs, or is to run.
func (c *clusterRun) version() string {
	version := clusters.Dig(c.object.Value(), "spec", "topology")["version"]
	controlPlane := c.view.ControlPlaneKind
	if o := c.Lookup(c.object.Namespace(), clusters.GroupControlPlane, controlPlane, c.view.ControlPlaneName); o != nil {
		version = clusters.Dig(o.Value(), "spec")["version"]
		if running := clusters.Dig(o.Value(), "status")["version"]; running != nil {
			version = running
		}
	}
	text, _ := version.(string)
	return text
}

// metadata updates the annotations of a Cluster to the published outputs.
func (c *clusterRun) metadata(annotations map[string]string, keep bool) {
	var edits []manifest.Edit
	set := func(list, key, current, value string) {
		path := []string{"metadata", list, key}
		switch {
		case current == value:
		case value == "":
			edits = append(edits, manifest.Edit{Op: manifest.RemoveKey, Path: path, Keep: 1})
		default:
			edits = append(edits, manifest.Edit{Op: manifest.SetScalar, Path: path, Value: value})
		}
	}
	if !keep {
		for _, key := range c.Publish.Publisher.Written() {
			set("annotations", key, c.object.Annotations()[key], annotations[key])
		}
	}
	switch {
	case len(edits) == 0:
	case c.Publish.Only:
		c.note(c.object, "has annotations of outputs that are not printed; --publish prints the Cluster with them")
	default:
		c.edits[c.object] = append(c.edits[c.object], edits...)
		if len(annotations) == 0 && !keep {
			c.note(c.object, "removed annotations that an output has written, because the Cluster does not ask for it")
		}
	}
}

// withdraw removes the annotations of outputs from a Cluster that does not ask for them.
func (c *clusterRun) withdraw(asks kit.Outputs) {
	if !c.Publish.Only && c.Publish.Publisher != nil {
		c.metadata(nil, asks.KeepAnnotations)
	}
}

// encodeDocument returns an object as a separate document.
func encodeDocument(object map[string]any, asJSON bool) ([]byte, error) {
	if asJSON {
		text, err := json.Marshal(object)
		return append(text, '\n'), err
	}
	text, err := yaml.Marshal(object)
	return append([]byte("---\n"), text...), err
}
