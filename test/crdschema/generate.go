package crdschema

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Limits of the lists of a bootstrap spec.
const (
	maxFiles    = 200
	maxCommands = 1000
)

// Object returns a bootstrap object of a kind and version, v1beta1 or v1beta2, that the schema accepts. Its lists are
// absent, short or as long as the schema allows, its text is rude, and there may be nothing but lists in it.
func Object(random *rand.Rand, kind, version string) map[string]any {
	group := "bootstrap.cluster.x-k8s.io"
	if strings.HasPrefix(kind, "KubeadmControlPlane") {
		group = "controlplane.cluster.x-k8s.io"
	}
	object := map[string]any{
		"apiVersion": group + "/" + version, "kind": kind, "metadata": map[string]any{"name": "one", "namespace": "ns"},
	}
	config := Spec(random, version)
	there := version == "v1beta1" || len(config) > 0
	put := func(in map[string]any, key string, value map[string]any) map[string]any {
		if there {
			in[key] = value
		}
		return in
	}
	switch kind {
	case "KubeadmControlPlane":
		object["spec"] = put(controlPlane(version), "kubeadmConfigSpec", config)
	case "KubeadmControlPlaneTemplate":
		spec := put(map[string]any{}, "kubeadmConfigSpec", config)
		if !there {
			spec["rollout"] = map[string]any{"after": "2026-01-01T00:00:00Z"}
		}
		object["spec"] = map[string]any{"template": map[string]any{"spec": spec}}
	case "KubeadmConfigTemplate":
		template := put(map[string]any{}, "spec", config)
		if !there || random.IntN(3) == 0 {
			template["metadata"] = map[string]any{"labels": map[string]any{"a": "b"}}
		}
		if there || random.IntN(2) == 0 {
			object["spec"] = map[string]any{"template": template}
		}
	default:
		put(object, "spec", config)
	}
	return object
}

func controlPlane(version string) map[string]any {
	reference := map[string]any{"kind": "DemoMachineTemplate", "name": "one"}
	if version == "v1beta1" {
		reference["apiVersion"] = "infrastructure.cluster.x-k8s.io/v1beta1"
		return map[string]any{"version": "v1.36.3", "machineTemplate": map[string]any{"infrastructureRef": reference}}
	}
	reference["apiGroup"] = "infrastructure.cluster.x-k8s.io"
	return map[string]any{
		"version":         "v1.36.3",
		"machineTemplate": map[string]any{"spec": map[string]any{"infrastructureRef": reference}},
	}
}

// Spec returns a bootstrap spec that the schema of a version accepts in an object, or an empty one.
func Spec(random *rand.Rand, version string) map[string]any {
	spec := map[string]any{}
	if random.IntN(4) == 0 {
		return spec
	}
	if random.IntN(2) == 0 {
		spec["joinConfiguration"] = map[string]any{"nodeRegistration": map[string]any{"name": rude[random.IntN(len(rude))]}}
	}
	for _, list := range []string{"files", "preKubeadmCommands", "postKubeadmCommands"} {
		limit := maxCommands
		if list == "files" {
			limit = maxFiles
		}
		entries := make([]any, length(random, limit))
		for i := range entries {
			text := rude[random.IntN(len(rude))]
			entries[i] = text
			if list == "files" {
				entries[i] = map[string]any{"path": fmt.Sprintf("/etc/%d/%s", i, text), "content": text}
			}
		}
		if len(entries) > 0 || version == "v1beta1" && random.IntN(2) == 0 {
			spec[list] = entries
		}
	}
	return spec
}

// length returns how long a list is: mostly short, now and then about as long as it may be.
func length(random *rand.Rand, limit int) int {
	if random.IntN(40) == 0 {
		return limit - random.IntN(12)
	}
	return random.IntN(4)
}

var rude = []string{ //nolint:gochecknoglobals // a constant
	"echo own",
	`%s "$(date)" '\\' {{ ds.meta_data }}`, "a\nb\n", "`id`; ~1 ~0 /-", "пробел", "{% raw %}\t",
	"export HTTP_PROXY=http://mine:1", "\u2028",
}
