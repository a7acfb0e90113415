package kit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Choose returns the index of the only Cluster among names with a name, which may be namespace/name, and a namespace;
// empty ones match any. Its error lists names and the flag that chooses.
func Choose(names []string, namespace, name, flag string) (int, error) {
	found := -1
	for i, n := range names {
		of, short, qualified := strings.Cut(n, "/")
		if !qualified {
			of, short = "", n
		}
		if name != "" && name != short && name != n || namespace != "" && of != "" && namespace != of {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("several Clusters; choose one with %s: %s", flag, strings.Join(names, ", "))
		}
		found = i
	}
	switch {
	case found >= 0:
		return found, nil
	case name != "":
		return 0, notFound(names, namespace, name)
	case namespace != "":
		return 0, fmt.Errorf("no Cluster found in namespace %s; %s", namespace, Listed(names))
	}
	return 0, errors.New("no Cluster in the input")
}

func notFound(names []string, namespace, name string) error {
	return fmt.Errorf("Cluster %s not found; %s", Qualified(namespace, name), Listed(names)) //nolint:staticcheck // a kind
}

// NotFound names the Clusters of a namespace, "" for all, of a management cluster that has none with a name there. It
// returns nil if it has one, or if Clusters cannot be listed.
func NotFound(ctx context.Context, api client.Reader, namespace, name string) error {
	var clusters clusterv1.ClusterList
	if api.List(ctx, &clusters, client.InNamespace(namespace)) != nil {
		return nil //nolint:nilerr // the caller has an error of its own
	}
	names := make([]string, len(clusters.Items))
	for i := range clusters.Items {
		if clusters.Items[i].Name == name {
			return nil
		}
		names[i] = client.ObjectKeyFromObject(&clusters.Items[i]).String()
	}
	if len(names) == 0 && namespace != "" {
		//nolint:staticcheck // it begins with a kind
		return fmt.Errorf("Cluster %s/%s not found, and namespace %s has none: name another with --namespace", namespace,
			name, namespace)
	}
	return notFound(names, namespace, name)
}

// Listed says which names there are.
func Listed(names []string) string {
	if len(names) == 0 {
		return "found none"
	}
	return "found: " + finding.Few(names)
}

// Qualified is a name with its namespace, which a manifest may not have.
func Qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
