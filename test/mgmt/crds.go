package mgmt

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// clusterAPIModule is the module that holds the CRDs of Cluster API beside its code.
const clusterAPIModule = "sigs.k8s.io/cluster-api"

//go:embed testdata/infrastructure-crds.yaml
var infrastructureCRDs []byte

// customResourceDefinitions returns the CRDs of Cluster API, as the module that dir is in requires it, and of the
// stand-in infrastructure provider.
//
// Versions that are not stored are left out: they need the conversion webhook, and without it the API server would
// answer with objects of one version under the name of another.
func customResourceDefinitions(ctx context.Context, dir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	module, err := ModuleDir(ctx, dir, clusterAPIModule)
	if err != nil {
		return nil, err
	}
	crds, err := decodeCRDs(infrastructureCRDs)
	if err != nil {
		return nil, fmt.Errorf("decoding CRDs of the infrastructure provider: %w", err)
	}
	for _, provider := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		found, err := readCRDs(filepath.Join(module, provider, "config", "crd", "bases"))
		if err != nil {
			return nil, err
		}
		crds = append(crds, found...)
	}
	for _, crd := range crds {
		prepare(crd)
	}
	return crds, nil
}

// prepare changes a CRD as it is in the repository of Cluster API into one for a cluster without webhooks.
func prepare(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion = nil
	for _, version := range crd.Spec.Versions {
		if !version.Storage {
			continue
		}
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
		// The kustomization of a provider adds the contract that its versions fulfill.
		if crd.Labels == nil {
			crd.Labels = map[string]string{}
		}
		crd.Labels[clusterv1.GroupVersion.Group+"/"+version.Name] = version.Name
		return
	}
}

// readCRDs decodes all YAML files of a folder.
func readCRDs(dir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	folder := os.DirFS(dir)
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("reading CRDs of Cluster API: no YAML files in %s", dir)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := fs.ReadFile(folder, file)
		if err != nil {
			return nil, fmt.Errorf("reading CRDs of Cluster API: %w", err)
		}
		found, err := decodeCRDs(text)
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", filepath.Join(dir, file), err)
		}
		crds = append(crds, found...)
	}
	return crds, nil
}

// decodeCRDs decodes the documents of a YAML text, each of which has to be a CRD.
func decodeCRDs(text []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := decoder.Decode(crd)
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, err
		}
		if crd.Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("document %d has kind %q instead of CustomResourceDefinition", len(crds)+1, crd.Kind)
		}
		crds = append(crds, crd)
	}
}

// ModuleDir returns the folder of a module that the module around dir requires.
func ModuleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module) //nolint:gosec // the caller names a module
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w: %s", module, err, strings.TrimSpace(stderr.String()))
	}
	found := strings.TrimSpace(string(out))
	if found == "" {
		return "", fmt.Errorf("finding module %s: it is not in the module cache; run go mod download", module)
	}
	return found, nil
}
