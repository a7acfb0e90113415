package noproxy

import (
	"fmt"
	"slices"
	"strings"
)

// Group names a part of the list that can be left out.
type Group string

const (
	// GroupLoopback is localhost and the loopback addresses.
	GroupLoopback Group = "loopback"
	// GroupPods is the Pod networks of the Cluster.
	GroupPods Group = "pods"
	// GroupServices is the Service networks of the Cluster.
	GroupServices Group = "services"
	// GroupServiceAddresses is the addresses of the API Service and of DNS, for clients that do not read networks.
	GroupServiceAddresses Group = "service-addresses"
	// GroupAPINames is the short names of the API Service.
	GroupAPINames Group = "api-names"
	// GroupServiceDomain is the suffixes of Service names.
	GroupServiceDomain Group = "service-domain"
	// GroupEndpoint is the control plane endpoint.
	GroupEndpoint Group = "endpoint"
	// GroupMetadata is the instance metadata service of the cloud.
	GroupMetadata Group = "metadata"
	// GroupInfrastructure is additional hosts of the infrastructure API.
	GroupInfrastructure Group = "infrastructure"
	// GroupInstallation is the entries that the operator of the manager gives to all Clusters.
	GroupInstallation Group = "installation"
	// GroupUser is the entries of the proxy Secret of the Cluster.
	GroupUser Group = "user"
)

// Groups returns all groups in the order in which they are composed.
func Groups() []Group {
	return []Group{
		GroupLoopback, GroupPods, GroupServices, GroupServiceAddresses, GroupAPINames, GroupServiceDomain, GroupEndpoint,
		GroupMetadata, GroupInfrastructure, GroupInstallation, GroupUser,
	}
}

// ParseOmittedGroups reads a list such as "-metadata,-infrastructure" and returns the groups in composition order, each
// once. Commas and spaces separate items; an empty value omits nothing. Every item starts with a hyphen, so that the
// value shows its effect. An error names the position of the item, counted from 1, and the known groups.
func ParseOmittedGroups(value string) ([]Group, error) {
	known := Groups()
	named := map[Group]bool{}
	for i, item := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		name, ok := strings.CutPrefix(item, "-")
		if !ok {
			return nil, fmt.Errorf("parsing omitted groups item %d: it does not start with a hyphen; write -%s", i+1,
				GroupMetadata)
		}
		if !slices.Contains(known, Group(name)) {
			return nil, fmt.Errorf("parsing omitted groups item %d: unknown group; known are %s", i+1,
				joinGroups(known))
		}
		named[Group(name)] = true
	}
	var out []Group
	for _, g := range known {
		if named[g] {
			out = append(out, g)
		}
	}
	return out, nil
}

func joinGroups(groups []Group) string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = string(g)
	}
	return strings.Join(names, ", ")
}
