//go:build tools

// Package clusterapi pins the managers of Cluster API v1.13 that hack/kube/build.sh builds.
package clusterapi

import (
	_ "sigs.k8s.io/cluster-api"
	_ "sigs.k8s.io/cluster-api/bootstrap/kubeadm"
	_ "sigs.k8s.io/cluster-api/controlplane/kubeadm"
)
