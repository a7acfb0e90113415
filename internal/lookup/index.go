package lookup

// The indexes that a cache needs for lookups.
const (
	// IndexControlPlane finds Clusters by the name of their KubeadmControlPlane.
	IndexControlPlane = "spec.controlPlaneRef.name"
	// IndexBootstrap finds MachineDeployments and MachinePools by the name of their bootstrap object.
	IndexBootstrap = "spec.template.spec.bootstrap.configRef.name"
	// IndexLabel finds KubeadmConfigs, Machines and generated Secrets by the Cluster that a label names.
	IndexLabel = "clusterLabel"
)
