package kit

import (
	"errors"
	"fmt"
	"strings"
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
		return 0, fmt.Errorf("Cluster %s not found; %s", Qualified(namespace, name), Listed(names)) //nolint:staticcheck // a kind
	case namespace != "":
		return 0, fmt.Errorf("no Cluster found in namespace %s; %s", namespace, Listed(names))
	}
	return 0, errors.New("no Cluster in the input")
}

// Listed says which names there are.
func Listed(names []string) string {
	if len(names) == 0 {
		return "found none"
	}
	return "found: " + strings.Join(names, ", ")
}

// Qualified is a name with its namespace, which a manifest may not have.
func Qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
