package patch_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// TestChangeOf_SaysWhatIsChangedOnANode has the recipe of all default targets, unless it says otherwise.
func TestChangeOf_SaysWhatIsChangedOnANode(t *testing.T) {
	t.Parallel()
	const (
		env, ca, setup = contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup
		containerd     = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
		kubelet        = "/etc/systemd/system/kubelet.service.d/http-proxy.conf"
	)
	both := []string{"containerd", "kubelet"}
	of := func(targets ...contract.Target) patch.Recipe {
		return recipe(t, patch.Options{Targets: targets})
	}
	all, own := of(contract.Targets()...), patch.Spec{Files: []patch.File{{Path: "/etc/issue", Content: "mine"}}}
	ensured := patch.Spec{Files: append(slices.Clone(own.Files), all.Files...)}
	with := func(spec patch.Spec, path string) patch.Spec {
		spec.Files = append(slices.Clone(spec.Files), patch.File{Path: path, Content: "[Service]\n"})
		return spec
	}
	for name, test := range map[string]struct {
		spec   patch.Spec
		recipe patch.Recipe
		got    string
		want   patch.NodeChange
	}{
		"made without the product": {spec: own, recipe: all, want: patch.NodeChange{Adds: []string{env, ca, setup, containerd, kubelet}, Restarts: both}},
		"made with the recipe":     {spec: ensured, recipe: all, want: patch.NodeChange{Replaces: []string{env, ca, setup}, Restarts: both}},
		"made with another Secret": {spec: patch.Spec{Files: of(contract.TargetKubelet).Files}, recipe: of(contract.TargetKubelet), want: patch.NodeChange{Replaces: []string{env, setup}, Restarts: both[1:]}},
		"a target more":            {spec: patch.Spec{Files: of(contract.TargetKubelet).Files}, recipe: of(contract.TargetKubelet, contract.TargetContainerd), want: patch.NodeChange{Adds: []string{containerd}, Replaces: []string{env, setup}, Restarts: both}},
		"a target less":            {spec: ensured, recipe: of(contract.TargetKubelet), want: patch.NodeChange{Replaces: []string{env, setup}, Removes: []string{ca, containerd}, Restarts: both}},
		"got them in place":        {spec: own, recipe: all, got: patch.FilesDigest(all), want: patch.NodeChange{Replaces: []string{env, ca, setup}, Restarts: both}},
		"got others in place":      {spec: own, recipe: of(contract.TargetKubelet), got: "other", want: patch.NodeChange{Replaces: []string{env, setup, kubelet}, Removes: []string{ca, containerd}, Restarts: both}},
		"lost them in place":       {spec: ensured, recipe: all, got: contract.FilesRemovedValue, want: patch.NodeChange{Adds: []string{env, ca, setup, containerd, kubelet}, Restarts: both}},
		"a drop-in by hand":        {spec: with(own, "/etc/systemd/system//kubelet.service.d/http-proxy.conf"), recipe: all, want: patch.NodeChange{Conflicts: []string{kubelet}}},
		"a drop-in that has gone":  {spec: with(own, kubelet), recipe: all, got: patch.FilesDigest(all), want: patch.NodeChange{Replaces: []string{env, ca, setup}, Restarts: both}},
		"that is not in the way":   {spec: with(own, containerd), recipe: of(contract.TargetKubelet), want: patch.NodeChange{Adds: []string{env, setup, kubelet}, Restarts: both[1:]}},
		"only certificates":        {spec: own, recipe: of(contract.TargetTrust), want: patch.NodeChange{Adds: []string{ca, setup}, Restarts: both}},
		"commands only":            {spec: own, recipe: of(contract.TargetCommands), want: patch.NodeChange{Adds: []string{env, setup}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := patch.ChangeOf(test.spec, test.recipe, test.got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
