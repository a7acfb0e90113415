package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// topology declares the product's patch in the ClusterClass of the Cluster.
func (c *clusterRun) topology() {
	if !c.view.Enabled {
		c.note(c.object, "the topology hook patches nothing without label %s=%s; add it to the Cluster",
			contract.LabelEnabled, contract.LabelEnabledValue)
	}
	class, name := c.Class(c.object)
	if class == nil {
		c.note(c.object,
			"ClusterClass %s is not in the input and is not patched; its spec.patches needs a last item named %s with "+
				"external: {%s}",
			name, contract.Name, settings.PatchLines())
	} else {
		c.declare(class)
	}
}

// hookFields returns the fields of an external patch in a version of the ClusterClass, with their values.
func hookFields(version string) manifest.Map {
	declared := settings.PatchFields(version)
	fields := make(manifest.Map, len(declared))
	for i, field := range declared {
		fields[i] = manifest.Field{Name: field.Name, Value: field.Extension}
	}
	return fields
}

// declare adds the product's patch to a ClusterClass, after all others, so that it sees their additions to the
// templates. An existing declaration is left unchanged.
func (r *renderer) declare(class *manifest.Object) {
	if r.declared[class] {
		return
	}
	r.declared[class] = true
	_, version, _ := strings.Cut(class.APIVersion(), "/")
	r.checkTemplates(class)
	for _, warning := range clusters.CheckPatches(class) {
		r.warn(class, "%s", warning)
	}
	patches := clusters.Items(class.Value(), "spec", "patches")
	at := slices.IndexFunc(patches, isDeclaration)
	if at >= 0 {
		r.checkDeclaration(class, patches, at, hookFields(version))
		return
	}
	if i := slices.IndexFunc(patches, func(p map[string]any) bool { return p["name"] == contract.Name }); i >= 0 {
		r.reject(class, "spec.patches[%d]: its name is %s but it is not that product's patch; rename it", i, contract.Name)
		return
	}
	r.edits[class] = []manifest.Edit{{
		Op: manifest.Insert, Path: []string{"spec", "patches"}, Index: len(patches),
		Value: manifest.Map{{Name: "name", Value: contract.Name}, {Name: "external", Value: hookFields(version)}},
	}}
}

// isDeclaration reports whether a patch of a ClusterClass is the product's: it has its handler, or its name and any
// handler, because an ExtensionConfig can have another name.
func isDeclaration(p map[string]any) bool {
	external := clusters.Dig(p, "external")
	for _, version := range []string{"v1beta1", "v1beta2"} {
		generate := hookFields(version)[0]
		handler, _ := external[generate.Name].(string)
		if handler == generate.Value || p["name"] == contract.Name &&
			strings.HasPrefix(handler, contract.HandlerGeneratePatches+".") {
			return true
		}
	}
	return false
}

// checkDeclaration warns about problems of an existing declaration.
func (r *renderer) checkDeclaration(class *manifest.Object, patches []map[string]any, at int, want manifest.Map) {
	for _, field := range want {
		if text, _ := clusters.Dig(patches[at], "external")[field.Name].(string); text == "" {
			r.warn(class, "spec.patches[%d].external lacks %s: %s", at, field.Name, field.Value)
		}
	}
	for i, later := range patches[at+1:] {
		if changesBootstrap(later) {
			r.warn(class, "spec.patches[%d] comes after the patch of %s and can undo it; move the latter to the end", at+1+
				i, contract.Name)
		}
	}
}

// changesBootstrap reports whether a patch may change templates that carry the proxy.
func changesBootstrap(p map[string]any) bool {
	definitions := clusters.Items(p, "definitions")
	return clusters.Dig(p, "external") != nil || slices.ContainsFunc(definitions, func(definition map[string]any) bool {
		kind := clusters.Dig(definition, "selector")["kind"]
		return kind == kindControlPlaneTemplate || kind == kindConfigTemplate
	})
}

// Kinds of templates that the topology hook patches.
const (
	kindControlPlaneTemplate = "KubeadmControlPlaneTemplate"
	kindConfigTemplate       = "KubeadmConfigTemplate"
)

// checkTemplates notes templates of a ClusterClass that cannot be patched.
func (r *renderer) checkTemplates(class *manifest.Object) {
	check := func(path string, parent map[string]any, want string) {
		if kind := clusters.TemplateKind(parent); kind != "" && kind != want {
			r.warn(class, "%s: %s cannot be patched, only %s", path, kind, want)
		}
	}
	spec := clusters.Dig(class.Value(), "spec")
	check("spec.controlPlane", clusters.Dig(spec, "controlPlane"), kindControlPlaneTemplate)
	for _, list := range []string{"machineDeployments", "machinePools"} {
		for i, item := range clusters.Items(spec, "workers", list) {
			bootstrap := clusters.Dig(item, "bootstrap")
			if bootstrap == nil {
				bootstrap = clusters.Dig(item, "template", "bootstrap") // v1beta1
			}
			check(fmt.Sprintf("spec.workers.%s[%d].bootstrap", list, i), bootstrap, kindConfigTemplate)
		}
	}
}

// checkClasses notes ClusterClasses that declare the patch although no Cluster in the input needs it. They are left
// unchanged: other Clusters may need it, and without the label the patch does nothing.
func (r *renderer) checkClasses() {
	for _, class := range r.Find("ClusterClass") {
		if !r.declared[class] && slices.ContainsFunc(clusters.Items(class.Value(), "spec", "patches"), isDeclaration) {
			r.note(class, "declares the patch of %s but no Cluster in the input needs it; left unchanged", contract.Name)
		}
	}
}
