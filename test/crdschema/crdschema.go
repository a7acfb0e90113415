// Package crdschema holds objects to the schemas of Cluster API's CustomResourceDefinitions, as an API server does, and
// generates bootstrap objects that they accept. It serves tests.
package crdschema

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	bootstrapconversion "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/conversion"
	controlplaneconversion "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/conversion"
	"sigs.k8s.io/yaml"
)

// Problems returns what the schema of an object's kind and version has against it.
func Problems(tb testing.TB, object map[string]any) []string {
	tb.Helper()
	kind, _ := object["kind"].(string)
	apiVersion, _ := object["apiVersion"].(string)
	_, version, _ := strings.Cut(apiVersion, "/")
	all, err := validators()
	if err != nil {
		tb.Fatal(err)
	}
	validator := all[kind+"/"+version]
	if validator == nil {
		tb.Fatalf("there is no CustomResourceDefinition of %s %s", apiVersion, kind)
	}
	var problems []string //nolint:prealloc // mostly there are none
	for _, problem := range validator.Validate(copyOf(tb, object)).Errors {
		problems = append(problems, problem.Error())
	}
	return problems
}

// AsV1Beta1 returns a v1beta2 object as the API server gives it to a client of v1beta1.
func AsV1Beta1(tb testing.TB, object map[string]any) map[string]any {
	tb.Helper()
	if _, err := validators(); err != nil {
		tb.Fatal(err)
	}
	var converted map[string]any
	switch object["kind"] {
	case "KubeadmControlPlane":
		converted = downgrade(tb, object, controlplaneconversion.ConvertKubeadmControlPlaneHubToV1Beta1)
	case "KubeadmControlPlaneTemplate":
		converted = downgrade(tb, object, controlplaneconversion.ConvertKubeadmControlPlaneTemplateHubToV1Beta1)
	case "KubeadmConfigTemplate":
		converted = downgrade(tb, object, bootstrapconversion.ConvertKubeadmConfigTemplateHubToV1Beta1)
	default:
		converted = downgrade(tb, object, bootstrapconversion.ConvertKubeadmConfigHubToV1Beta1)
	}
	apiVersion, _ := object["apiVersion"].(string)
	converted["kind"], converted["apiVersion"] = object["kind"], strings.Replace(apiVersion, "v1beta2", "v1beta1", 1)
	return converted
}

func downgrade[Hub, Spoke any](tb testing.TB, object map[string]any,
	convert func(context.Context, *Hub, *Spoke) error,
) map[string]any {
	tb.Helper()
	var (
		hub   Hub
		spoke Spoke
		found map[string]any
	)
	through(tb, object, &hub)
	if err := convert(tb.Context(), &hub, &spoke); err != nil {
		tb.Fatal(err)
	}
	through(tb, spoke, &found)
	return found
}

func copyOf(tb testing.TB, object map[string]any) map[string]any {
	tb.Helper()
	var copied map[string]any
	through(tb, object, &copied)
	return copied
}

// through passes a value through JSON.
func through(tb testing.TB, from, to any) {
	tb.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		tb.Fatal(err)
	}
}

// validators reads the CustomResourceDefinitions of the kubeadm providers from the module cache, once. Its keys are
// kind/version.
var validators = sync.OnceValues(func() (map[string]*validate.SchemaValidator, error) { //nolint:gochecknoglobals // a cache
	controlplaneconversion.SetAPIVersionGetter(func(_ context.Context, kind schema.GroupKind) (string, error) {
		return kind.Group + "/v1beta1", nil
	})
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding Cluster API in the module cache: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "*", "kubeadm", "config", "crd",
		"bases", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	found := map[string]*validate.SchemaValidator{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of the module cache
		if err != nil {
			return nil, fmt.Errorf("reading CustomResourceDefinition: %w", err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema spec.Schema }
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			found[crd.Spec.Names.Kind+"/"+version.Name] = validate.NewSchemaValidator(&version.Schema.OpenAPIV3Schema, nil,
				"", strfmt.Default)
		}
	}
	return found, nil
})
