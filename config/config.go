// Package config holds the manifests of the product that the program itself reads.
package config

import _ "embed"

// ManagerRole is the ClusterRole of the manager.
//
//go:embed rbac/role.yaml
var ManagerRole []byte
