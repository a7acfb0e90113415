// Package render patches manifests without a cluster: the same decisions as the controller's, on a stream of YAML
// documents instead of the API server's objects.
package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Options configure Render.
type Options struct {
	// Inputs are the manifests to patch.
	Inputs []clusters.Input
	// Secrets are additional files with proxy Secrets, which are not part of the output.
	Secrets []clusters.Input
	// DefaultSecret is the installation-wide Secret; its zero value means that there is none.
	DefaultSecret types.NamespacedName
	// All patches every Cluster, with or without the label.
	All bool
	// IncludeSecrets adds the generated Secrets to the output.
	IncludeSecrets bool
	// IncompleteSecrets prints generated Secrets even if the network of the Cluster is not fully known.
	IncompleteSecrets bool
	// Publish selects the published values that are printed.
	Publish Publish
	// Now is the clock by which trusted certificates expire. Without it there are no warnings about them.
	Now func() time.Time
}

// Result is the outcome of Render.
type Result struct {
	// Output is the whole stream.
	Output []byte
	// Notes are lines for people, in the order of the input. They hold no secret.
	Notes []string
	// Warnings counts the notes that are warnings.
	Warnings int
	// Summary is a line for people about usual facts that need no change, or "".
	Summary string
	// Findings are those that the notes show.
	Findings finding.Errors

	streams []*manifest.Stream
	secrets []byte // generated ones that no input has
}

// rejection is an error with the findings that its text shows.
type rejection struct {
	error

	found finding.Errors
}

// Unwrap implements the interface of package errors for finding.Of.
func (r *rejection) Unwrap() error { return r.found }

// Diff returns a unified diff for each input that changed, and one for the generated Secrets that are new.
func (r Result) Diff() []byte {
	var result []byte
	for _, stream := range r.streams {
		result = append(result, stream.Diff()...)
	}
	secrets := manifest.DiffPart{New: string(r.secrets)}
	return append(result, manifest.UnifiedDiff("/dev/null", "generated Secrets", secrets)...)
}

// Render patches what belongs to the Clusters of the inputs, ClusterClasses included. From a Cluster without the label
// it removes what an earlier run has added, except from a ClusterClass, which others may use. It changes nothing unless
// everything can be done: its error joins all findings, each with file, document, object and field.
func Render(ctx context.Context, o Options) (Result, error) {
	r, err := newRenderer(ctx, o)
	if err != nil {
		return Result{}, err
	}
	r.checkMetadata()
	all := r.Find("Cluster")
	if r.only, err = r.Publish.choose(all); err != nil {
		return Result{}, err
	}
	for _, cluster := range all {
		if !r.Publish.Only {
			r.cluster(ctx, cluster)
		} else if r.isPublished(cluster) {
			r.publishOnly(ctx, cluster)
		}
	}
	if !r.Publish.Only {
		r.checkWorkers()
		r.checkStrays()
		r.checkClasses()
		r.checkNames()
	}
	if err := r.problems.err(); err != nil {
		return Result{}, &rejection{err, r.rejected}
	}
	return r.result()
}

// renderer is the state of one run.
type renderer struct {
	Options

	*clusters.Manifests

	passes   *clusters.Passes
	notes    lines
	warnings int // among notes, for each object
	usual    usual
	problems lines
	// noted and rejected are the findings in notes and in problems.
	noted, rejected finding.Errors
	// edits are the changes to make.
	edits map[*manifest.Object][]manifest.Edit
	// declared are the ClusterClasses of Clusters that are patched.
	declared map[*manifest.Object]bool
	// generated are the Secrets that bootstrap objects refer to, in order.
	generated []generatedSecret
	needed    map[secretKey]bool
	// only is the one Cluster whose values are published, nil for all.
	only *manifest.Object
	// published are the documents with published values, silent the reasons why a Cluster has none.
	published [][]byte
	silent    []string
}

// secretKey identifies a generated Secret.
type secretKey struct {
	cluster *manifest.Object
	name    string
}

func newRenderer(ctx context.Context, o Options) (*renderer, error) {
	read, err := clusters.Read(o.Inputs, o.Secrets, o.DefaultSecret)
	if err != nil {
		return nil, err
	}
	passes, err := clusters.Passes{All: o.All, Now: o.Now, Controller: newController}.Over(ctx, read)
	if err != nil {
		return nil, err
	}
	r := &renderer{
		Options: o, Manifests: read, passes: passes,
		declared: map[*manifest.Object]bool{}, edits: map[*manifest.Object][]manifest.Edit{},
		needed: map[secretKey]bool{},
	}
	for _, note := range read.Notes {
		r.notes.add(nil, note)
	}
	return r, nil
}

// newController returns a controller that reports to nobody.
func newController(s clusters.Surroundings) (clusters.Controller, error) {
	return controller.New(controller.Config{
		Client: s.Client, Live: s.Live, Memory: s.Memory, Now: s.Now, Recorder: &events.FakeRecorder{},
	})
}

func (r *renderer) note(o *manifest.Object, format string, args ...any) (added bool) {
	r.noted = append(r.noted, kit.Among(args)...)
	return r.notes.add(o, fmt.Sprintf(format, args...))
}

// warn adds a warning.
func (r *renderer) warn(o *manifest.Object, format string, args ...any) {
	if r.note(o, "warning: "+format, args...) {
		r.warnings++
	}
}

func (r *renderer) reject(o *manifest.Object, format string, args ...any) {
	r.rejected = append(r.rejected, kit.Among(args)...)
	r.problems.add(o, fmt.Sprintf(format, args...))
}

// cluster patches the bootstrap objects of one Cluster, or removes the entries of an earlier run.
func (r *renderer) cluster(ctx context.Context, object *manifest.Object) {
	read := r.Cluster(object)
	if !r.All && read.View.Unclear != nil {
		r.leave(object, read.View.Unclear)
		return
	}
	enabled := r.All || read.View.Enabled
	if enabled {
		r.explainMembers(object, read.View)
	}
	c := &clusterRun{
		renderer: r, object: object, view: read.View, options: read.Settings.Options,
		unresolved: read.Unresolved,
	}
	if enabled && read.Invalid != nil {
		r.reject(object, "%s", read.Invalid)
		return
	}
	decided, err := r.passes.Run(ctx, object)
	if err != nil {
		r.reject(object, "%s", err)
		return
	}
	if !enabled {
		c.withdraw(kit.Outputs{})
		for _, o := range decided {
			c.carryOut(o)
			if len(o.Decision.Edits) > 0 {
				c.note(o.Object, "removed the proxy, because Cluster %s has no label %s", c.view.Name, contract.LabelEnabled)
			}
		}
		return
	}
	if c.view.Paused {
		r.note(object, "is paused and patched here all the same; the controller changes nothing until it is unpaused")
	}
	if len(c.unresolved) > 0 {
		c.usual.add(codeVariables, object)
	}
	usable := true
	for _, one := range r.Resolve(ctx, read, r.Resolver(r.Now)) {
		usable = c.report(one) && usable
	}
	if r.isPublished(object) && usable {
		c.publish(ctx)
	} else if r.Publish.Publisher != nil {
		key := r.Publish.Publisher.Annotation()
		if asks, err := r.Publish.Publisher.Asked(map[string]string{key: c.view.Annotations[key]}, ""); err == nil {
			c.withdraw(asks)
		}
	}
	if c.view.Topology {
		c.topology()
	}
	for _, o := range decided {
		c.carryOut(o)
	}
}

// result collects the output after success.
func (r *renderer) result() (Result, error) {
	if r.Publish.Only {
		r.noteSilence()
		text := bytes.Join(r.published, nil)
		return Result{Output: text, Notes: r.notes.texts(), Warnings: r.warnings, Findings: r.noted, secrets: text}, nil
	}
	added, err := r.writeSecrets()
	if err != nil {
		return Result{}, err
	}
	added = append(added, bytes.Join(r.published, nil)...)
	if err := r.commit(); err != nil {
		return Result{}, err
	}
	secrets, err := manifest.Parse("generated Secrets", added)
	if err != nil {
		return Result{}, err
	}
	output, err := manifest.Join(append(slices.Clone(r.Streams), secrets)...)
	if err != nil {
		return Result{}, fmt.Errorf("joining output: %w", err)
	}
	return Result{
		Output: output, Notes: r.notes.texts(), Warnings: r.warnings, Summary: r.usual.String(),
		Findings: r.noted,
		streams:  r.Streams, secrets: added,
	}, nil
}

// commit makes all edits.
func (r *renderer) commit() error {
	problems := make([]error, 0, len(r.Streams))
	for _, stream := range r.Streams {
		var changes []manifest.Change
		for _, o := range stream.Objects() {
			if edits := r.edits[o]; edits != nil {
				changes = append(changes, manifest.Change{Object: o, Edits: edits})
			}
		}
		problems = append(problems, stream.Apply(changes))
	}
	return errors.Join(problems...)
}

// checkWorkers reports which workers are not patched, or cannot be, because of their namespace.
func (r *renderer) checkWorkers() {
	for _, worker := range r.AllWorkers() {
		own, named := r.NamedBy(worker)
		certain := own != nil && (worker.Namespace() != "" || own.Namespace() == "")
		if len(named) == 0 || certain || plan.IsTopologyOwned(worker.Labels()) {
			continue
		}
		switch {
		case !slices.ContainsFunc(named, func(o *manifest.Object) bool { return r.All || settings.IsEnabled(o.Labels()) }):
		case own == nil:
			r.warn(worker,
				"names %s, which is in another namespace, and is not patched; a %s is in the namespace of its Cluster",
				named[0].String(), worker.Kind())
		case len(named) > 1:
			r.reject(worker, "has no namespace and may belong to %s or to %s; write its namespace",
				named[0].String(), named[1].String())
		}
	}
}

// checkStrays notes patched objects that belong to no Cluster in the input.
func (r *renderer) checkStrays() {
	used := map[*manifest.Object]bool{}
	for _, cluster := range r.Find("Cluster") {
		for _, use := range r.Uses(cluster) {
			used[use.Object] = true
		}
	}
	for _, o := range r.Index.Objects {
		object := r.BootstrapOf(o)
		if object != nil && !used[o] && !plan.IsTopologyOwned(o.Labels()) && patch.IsPatched(kinds.View(object)) {
			r.note(o, "carries the proxy but no Cluster in the input uses it; left unchanged")
		}
	}
}

// apply records the edits of package patch for the spec at a path of o, which may already have some if two Clusters
// without the label use it, and the output version; "" removes its annotation.
func (r *renderer) apply(o *manifest.Object, path []string, edits []patch.Edit, version string) {
	keep := 0 // leading elements that stay when the spec is emptied
	// Later versions accept no empty spec, and no parent that would be empty without it.
	if strings.HasSuffix(o.APIVersion(), "/v1beta1") {
		keep = len(path)
	}
	var changes []manifest.Edit
	for _, edit := range edits {
		change := manifest.Edit{Path: append(slices.Clone(path), string(edit.List)), Index: edit.Index, Keep: keep}
		switch edit.Op {
		case patch.OpAdd:
			change.Op = manifest.Insert
		case patch.OpRemove:
			change.Op = manifest.Remove
		case patch.OpReplace:
			change.Op = manifest.Replace
		}
		switch {
		case edit.Op == patch.OpRemove:
		case edit.List == patch.ListFiles:
			change.Value = mapping(edit.File)
		default:
			change.Value = edit.Command
		}
		changes = append(changes, change)
	}
	record := []string{"metadata", "annotations", contract.AnnotationOutputVersion}
	if version == "" {
		changes = append(changes, manifest.Edit{Op: manifest.RemoveKey, Path: record, Keep: 1})
	} else {
		changes = append(changes, manifest.Edit{Op: manifest.SetScalar, Path: record, Value: version})
	}
	r.edits[o] = changes
}

// mapping returns a file with its fields in the order of Cluster API's type.
func mapping(f patch.File) manifest.Map {
	m := manifest.Map{
		{Name: "path", Value: f.Path}, {Name: "owner", Value: f.Owner}, {Name: "permissions", Value: f.Permissions},
	}
	switch from := f.ContentFrom; {
	case from != (patch.SecretKey{}):
		key := manifest.Map{{Name: "name", Value: from.Name}, {Name: "key", Value: from.Key}}
		m = append(m, manifest.Field{Name: "contentFrom", Value: manifest.Map{{Name: "secret", Value: key}}})
	case f.Content != "":
		m = append(m, manifest.Field{Name: "content", Value: f.Content})
	}
	return m
}
