// Package infrastructure knows which network facts each kind of infrastructure cluster object has: where a Cluster's
// metadata service is, in which networks its nodes have their addresses, and which other hosts are internal. The table
// in this file is all that the product knows about providers.
//
// The package is pure. Objects are read as unstructured data, by the names of their fields, in any version.
package infrastructure

// row describes kinds of infrastructure cluster objects.
//
// A path is names of fields with dots between them. A name that ends with [] is a list, each item of which is read; one
// that ends with {} is a mapping, each value of which is read.
type row struct {
	kinds []string
	// metadata are hosts that serve instance metadata; metadataIPv6 only in Clusters with an IPv6 network. metadataIn
	// are paths of additional ones.
	metadata, metadataIPv6, metadataIn []string
	// nodes are paths of networks in which Machines have their addresses. The first list with a result counts.
	nodes [][]string
	// ranges are paths of objects with addresses and prefix; the network of the first address is a node network.
	ranges []string
	// nodesIf is the path of a field that must be true for nodes to count, or "".
	nodesIf string
	// pods reports that Pods may have addresses from the node networks, as with a CNI of the cloud.
	pods bool
	// internal are additional internal hosts and suffixes.
	internal []string
	// hosts are paths of hosts that are internal, with or without a port. urls are paths of URLs with such hosts.
	hosts, urls []string
	// suffixes make suffixes of names from the values at paths.
	suffixes map[string]func(value string) string
	// endpoint is the path of the control-plane endpoint if it is not in spec.controlPlaneEndpoint.
	endpoint string
	// userData is how many bytes of user data the cloud takes. Where it counts base64, they are three quarters.
	userData int
}

// linkLocal is where most clouds serve instance metadata.
const linkLocal = "169.254.169.254"

var rows = table() //nolint:gochecknoglobals // a constant

// table returns all rows, in the order of the documentation.
func table() []row {
	aws, awsIPv6 := []string{linkLocal, "169.254.170.2", "169.254.170.23"}, []string{"fd00:ec2::254"}
	gcp := []string{linkLocal, "metadata.google.internal", "metadata"}
	return []row{
		{
			kinds: []string{"AWSCluster"}, metadata: aws, metadataIPv6: awsIPv6,
			nodes: [][]string{
				{
					"spec.network.vpc.cidrBlock", "spec.network.vpc.secondaryCidrBlocks[].ipv4CidrBlock",
					"spec.network.vpc.ipv6.cidrBlock",
				},
				{"spec.network.subnets[].cidrBlock", "spec.network.subnets[].ipv6CidrBlock"},
			},
			pods: true, suffixes: map[string]func(string) string{"spec.region": awsSuffix},
		},
		{kinds: []string{"AWSManagedCluster", "ROSACluster"}, metadata: aws, metadataIPv6: awsIPv6},
		{
			kinds: []string{"AzureCluster"}, metadata: []string{linkLocal}, userData: 87_380 / 4 * 3,
			nodes:    [][]string{{"spec.networkSpec.vnet.cidrBlocks[]"}, {"spec.networkSpec.subnets[].cidrBlocks[]"}},
			internal: []string{"168.63.129.16", ".internal.cloudapp.net"},
			hosts:    []string{"spec.networkSpec.apiServerLB.frontendIPs[].privateIP"},
			suffixes: map[string]func(string) string{"spec.networkSpec.privateDNSZoneName": dotted},
		},
		{kinds: []string{"AzureManagedCluster", "AzureASOManagedCluster"}, metadata: []string{linkLocal}},
		{
			kinds: []string{"GCPCluster", "GCPManagedCluster"}, metadata: gcp,
			nodes:    [][]string{{"spec.network.subnets[].cidrBlock", "spec.network.subnets[].secondaryCidrBlocks{}"}},
			suffixes: map[string]func(string) string{"spec.project": gcpSuffix},
		},
		{
			kinds: []string{"OpenStackCluster"}, metadata: []string{linkLocal}, userData: 65_535 / 4 * 3,
			nodes: [][]string{{"spec.managedSubnets[].cidr", "spec.nodeCidr", "status.network.subnets[].cidr"}},
			hosts: []string{"spec.apiServerFixedIP"},
		},
		{kinds: []string{"VSphereCluster"}, hosts: []string{"spec.server"}},
		{kinds: []string{"NutanixCluster"}, hosts: []string{"spec.prismCentral.address"}},
		{kinds: []string{"VCDCluster"}, urls: []string{"spec.site"}},
		{
			kinds: []string{"CloudStackCluster"}, metadataIn: []string{"spec.failureDomains[].zone.network.gateway"},
			nodes: [][]string{{"spec.failureDomains[].zone.network.vpc.cidr"}},
		},
		{
			kinds: []string{"HetznerCluster"}, metadata: []string{linkLocal}, nodesIf: "spec.hcloudNetwork.enabled",
			nodes: [][]string{{"spec.hcloudNetwork.cidrBlock", "spec.hcloudNetwork.subnetCidrBlock"}}, userData: 32_768,
		},
		{
			kinds: []string{"OCICluster"}, metadata: []string{linkLocal}, userData: 32_000 / 4 * 3,
			nodes: [][]string{
				{"spec.networkSpec.vcn.cidr", "spec.networkSpec.vcn.cidrs[]"},
				{"spec.networkSpec.vcn.subnets[].cidr"},
			},
			internal: []string{".oraclevcn.com"},
		},
		{
			kinds: []string{"OscCluster"}, metadata: []string{linkLocal},
			nodes: [][]string{{"spec.network.net.ipRange", "spec.network.subnets[].ipSubnetRange"}},
		},
		{kinds: []string{"ProxmoxCluster"}, ranges: []string{"spec.ipv4Config", "spec.ipv6Config"}},
		{kinds: []string{"PacketCluster"}, metadata: []string{"metadata.platformequinix.com"}},
		{kinds: []string{"DOCluster", "VultrCluster"}, metadata: []string{linkLocal}},
		{kinds: []string{"LinodeCluster"}, metadata: []string{linkLocal, "fd00:a9fe:a9fe::1"}},
		{kinds: []string{"ScalewayCluster"}, metadata: []string{"169.254.42.42", "fd00:42::42", linkLocal}},
		{
			kinds: []string{"IBMVPCCluster"}, metadata: []string{linkLocal, "api.metadata.cloud.ibm.com"},
			nodes: [][]string{
				{"spec.network.controlPlaneSubnets[].cidr", "spec.network.workerSubnets[].cidr"}, {"status.subnet.cidr"},
			},
		},
		{
			kinds: []string{"IBMPowerVSCluster"}, metadata: []string{linkLocal, "api.metadata.cloud.ibm.com"},
			nodes: [][]string{{"spec.dhcpServer.cidr"}},
		},
		{kinds: []string{"MetalStackCluster"}, nodes: [][]string{{"status.nodeCIDR"}}, endpoint: "spec.controlPlaneIP"},
		{kinds: []string{
			"Metal3Cluster", "TinkerbellCluster", "KubevirtCluster", "DockerCluster", "MaasCluster", "ELFCluster",
		}},
	}
}
