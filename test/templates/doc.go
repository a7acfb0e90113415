// Package templates tests what users copy from the folder templates: that clusterctl renders it, that an API server
// with the CRDs of Cluster API takes it, and that the manager makes of it what it promises.
package templates
