package infrastructure_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// told is a row of the tables below: an object as the provider's templates and API have it, and what it tells, each as
// "group value" with " node" behind a node network, in the order of NO_PROXY.
type told struct {
	kind, object string
	want         []string
}

// metadata are entries of group metadata.
func metadata(hosts ...string) []string {
	entries := make([]string, len(hosts))
	for i, host := range hosts {
		entries[i] = "metadata " + host
	}
	return entries
}

// rest is what follows metadata.
func rest(entries ...string) []string {
	for i, entry := range entries {
		entries[i] = "infrastructure " + entry
	}
	return entries
}

const linkLocal = "169.254.169.254"

func aws(entries ...string) []string {
	return slices.Concat(metadata(linkLocal, "169.254.170.2", "169.254.170.23"), rest(entries...))
}

func cloud(entries ...string) []string { return append(metadata(linkLocal), rest(entries...)...) }

func tellings() map[string]told {
	return map[string]told{
		"AWSCluster of a template":           {"AWSCluster", "spec: {region: eu-west-1, sshKeyName: default}", aws(".eu-west-1.compute.internal")},
		"AWSCluster with a VPC":              {"AWSCluster", "spec: {region: us-east-1, network: {vpc: {cidrBlock: 10.50.0.0/16, ipv6: {cidrBlock: '2001:db8:5::/56'}, secondaryCidrBlocks: [{ipv4CidrBlock: 100.64.0.0/16}]}, subnets: [{cidrBlock: 10.50.1.0/24}]}}", aws("10.50.0.0/16 node", "100.64.0.0/16 node", "2001:db8:5::/56 node", ".ec2.internal")},
		"AWSCluster with subnets of others":  {"AWSCluster", "spec: {network: {vpc: {id: vpc-1}, subnets: [{id: subnet-1, cidrBlock: 10.0.1.0/24}, {cidrBlock: 10.0.2.0/24, ipv6CidrBlock: '2001:db8:2::/64'}]}}", aws("10.0.1.0/24 node", "10.0.2.0/24 node", "2001:db8:2::/64 node")},
		"AWSManagedCluster":                  {"AWSManagedCluster", "spec: {controlPlaneEndpoint: {host: x.eks.amazonaws.com, port: 443}}", aws()},
		"AzureCluster of a template":         {"AzureCluster", "spec: {location: westeurope, networkSpec: {subnets: [{name: node-subnet, role: node}], vnet: {name: v}}}", cloud("168.63.129.16", ".internal.cloudapp.net")},
		"AzureCluster with a network":        {"AzureCluster", "spec: {networkSpec: {privateDNSZoneName: kubernetes.internal, vnet: {cidrBlocks: [10.0.0.0/8]}, subnets: [{cidrBlocks: [10.1.0.0/16]}], apiServerLB: {type: Internal, frontendIPs: [{name: f, privateIP: 10.0.0.100}]}}}", cloud("168.63.129.16", ".internal.cloudapp.net", "10.0.0.0/8 node", "10.0.0.100", ".kubernetes.internal")},
		"AzureCluster with subnets":          {"AzureCluster", "spec: {networkSpec: {vnet: {resourceGroup: rg, name: own}, subnets: [{cidrBlocks: [10.1.0.0/16]}, {cidrBlocks: [10.2.0.0/16, 'fd00:2::/64']}]}}", cloud("168.63.129.16", ".internal.cloudapp.net", "10.1.0.0/16 node", "10.2.0.0/16 node", "fd00:2::/64 node")},
		"AzureManagedCluster":                {"AzureManagedCluster", "spec: {}", cloud()},
		"GCPCluster":                         {"GCPCluster", "spec: {project: example.com:my-project, region: us-east4, network: {name: default, subnets: [{cidrBlock: 10.0.32.0/20, secondaryCidrBlocks: {services: 10.8.0.0/20, pods: 10.4.0.0/14}}]}}", slices.Concat(metadata(linkLocal, "metadata.google.internal", "metadata"), rest("10.0.32.0/20 node", "10.4.0.0/14 node", "10.8.0.0/20 node", ".c.my-project.example.com.internal"))},
		"GCPManagedCluster":                  {"GCPManagedCluster", "spec: {project: my-project, network: {name: default}}", slices.Concat(metadata(linkLocal, "metadata.google.internal", "metadata"), rest(".c.my-project.internal"))},
		"OpenStackCluster":                   {"OpenStackCluster", "spec: {apiServerFixedIP: 10.6.0.5, managedSubnets: [{cidr: 10.6.0.0/24}], identityRef: {name: c}}\nstatus: {network: {subnets: [{cidr: 10.6.0.0/24, id: x}, {cidr: 10.7.0.0/24}]}}", cloud("10.6.0.0/24 node", "10.7.0.0/24 node", "10.6.0.5")},
		"OpenStackCluster, older":            {"OpenStackCluster", "spec: {nodeCidr: 10.6.0.0/24, cloudName: c}", cloud("10.6.0.0/24 node")},
		"VSphereCluster":                     {"VSphereCluster", "spec: {controlPlaneEndpoint: {host: 10.0.0.9, port: 6443}, server: 'vcenter.corp.example:8443', thumbprint: 'AA:BB'}", rest("vcenter.corp.example")},
		"NutanixCluster":                     {"NutanixCluster", "spec: {prismCentral: {address: prism.corp.example, port: 9440, insecure: false}}", rest("prism.corp.example")},
		"VCDCluster":                         {"VCDCluster", "spec: {site: 'https://vcd.corp.example:8443/api', org: o, ovdc: v}", rest("vcd.corp.example")},
		"CloudStackCluster":                  {"CloudStackCluster", "spec: {failureDomains: [{name: fd1, zone: {name: z, network: {name: n, offering: o}}}]}", nil},
		"CloudStackCluster with networks":    {"CloudStackCluster", "spec: {failureDomains: [{zone: {network: {name: n, gateway: 10.1.1.1, netmask: 255.255.255.0, vpc: {name: v, cidr: 10.1.0.0/16}}}}]}", append(metadata("10.1.1.1"), rest("10.1.0.0/16 node")...)},
		"HetznerCluster":                     {"HetznerCluster", "spec: {hcloudNetwork: {enabled: true, cidrBlock: 10.0.0.0/16, subnetCidrBlock: 10.0.0.0/24, networkZone: eu-central}}", cloud("10.0.0.0/16 node", "10.0.0.0/24 node")},
		"HetznerCluster without a network":   {"HetznerCluster", "spec: {hcloudNetwork: {enabled: false, cidrBlock: 10.0.0.0/16}}", cloud()},
		"OCICluster":                         {"OCICluster", "spec: {compartmentId: c, networkSpec: {vcn: {name: v, cidr: 172.16.0.0/16, subnets: [{name: w, role: worker, cidr: 172.16.10.0/24}]}}}", cloud(".oraclevcn.com", "172.16.0.0/16 node")},
		"OCICluster with subnets":            {"OCICluster", "spec: {networkSpec: {vcn: {subnets: [{cidr: 10.1.0.0/29}, {cidr: 10.1.64.0/20}]}}}", cloud(".oraclevcn.com", "10.1.0.0/29 node", "10.1.64.0/20 node")},
		"OscCluster":                         {"OscCluster", "spec: {network: {net: {name: n, ipRange: 172.19.95.128/25}, subnets: [{name: s, ipSubnetRange: 172.19.95.192/27}]}}", cloud("172.19.95.128/25 node", "172.19.95.192/27 node")},
		"ProxmoxCluster":                     {"ProxmoxCluster", "spec: {allowedNodes: [pve], dnsServers: [10.0.0.1], ipv4Config: {addresses: [10.0.0.210-10.0.0.250, 10.9.0.1], gateway: 10.0.0.1, prefix: 24}, ipv6Config: {addresses: ['2001:db8::10/120'], prefix: 64}}", rest("10.0.0.0/24 node", "2001:db8::/64 node")},
		"PacketCluster":                      {"PacketCluster", "spec: {projectID: p, metro: da, vipManager: CPEM}", metadata("metadata.platformequinix.com")},
		"DOCluster":                          {"DOCluster", "spec: {region: nyc1, network: {vpc: {vpc_uuid: u}}}", cloud()},
		"VultrCluster":                       {"VultrCluster", "spec: {region: ewr}", cloud()},
		"LinodeCluster":                      {"LinodeCluster", "spec: {region: us-mia, vpcRef: {kind: LinodeVPC, name: v}}", metadata(linkLocal, "fd00:a9fe:a9fe::1")},
		"ScalewayCluster":                    {"ScalewayCluster", "spec: {region: fr-par, projectID: p, scalewaySecretName: s}", metadata("169.254.42.42", "fd00:42::42", linkLocal)},
		"IBMVPCCluster":                      {"IBMVPCCluster", "spec: {region: us-south, resourceGroup: r, vpc: v, zone: us-south-1}", metadata(linkLocal, "api.metadata.cloud.ibm.com")},
		"IBMVPCCluster with subnets":         {"IBMVPCCluster", "spec: {network: {controlPlaneSubnets: [{cidr: 10.240.0.0/24, zone: z}], workerSubnets: [{cidr: 10.240.1.0/24}]}}", append(metadata(linkLocal, "api.metadata.cloud.ibm.com"), rest("10.240.0.0/24 node", "10.240.1.0/24 node")...)},
		"IBMPowerVSCluster":                  {"IBMPowerVSCluster", "spec: {serviceInstanceID: s, network: {name: n}, dhcpServer: {cidr: 192.168.7.0/24}}", append(metadata(linkLocal, "api.metadata.cloud.ibm.com"), rest("192.168.7.0/24 node")...)},
		"IBMVPCCluster, older":               {"IBMVPCCluster", "status: {subnet: {cidr: 10.240.0.0/24, name: s}}", append(metadata(linkLocal, "api.metadata.cloud.ibm.com"), rest("10.240.0.0/24 node")...)},
		"MetalStackCluster":                  {"MetalStackCluster", "spec: {projectID: p, partition: x, controlPlaneIP: 203.0.113.9}\nstatus: {nodeCIDR: 10.130.16.0/22}", rest("10.130.16.0/22 node")},
		"DockerCluster, which tells nothing": {"DockerCluster", "spec: {controlPlaneEndpoint: {host: 172.18.0.3, port: 6443}}", nil},
		"a kind that nobody knows":           {"DemoCluster", "spec: {server: vcenter.corp.example, region: eu}", nil},
	}
}

// compose returns the entries that facts make, as told has them, and the codes and places of warnings.
func compose(t *testing.T, facts infrastructure.Facts) (entries []string, warnings []string) {
	t.Helper()
	result, err := noproxy.Compose(noproxy.Input{PodCIDRs: []string{"192.0.2.0/24"}, Infrastructure: facts.Infrastructure})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range result.Entries {
		if e.Group == noproxy.GroupMetadata || e.Group == noproxy.GroupInfrastructure {
			entry := string(e.Group) + " " + e.Value
			if e.Node {
				entry += " node"
			}
			entries = append(entries, entry)
		}
	}
	for _, w := range result.Warnings {
		if w.Code == noproxy.CodeInfrastructureIgnored {
			warnings = append(warnings, w.Place.String()+": "+w.Message)
		}
	}
	return entries, warnings
}

func read(t *testing.T, kind, object string) infrastructure.Facts {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(object), &value); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return infrastructure.Read(kind, "prod", value)
}

func TestTable_ReadsAnObjectOfEachKind(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, test := range tellings() {
		seen[test.kind] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := read(t, test.kind, test.object)
			got, warnings := compose(t, facts)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
	for _, kind := range infrastructure.Kinds() {
		if !seen[kind] && infrastructure.IsRead(kind) {
			t.Errorf("no object of kind %s is read", kind)
		}
	}
}

func TestRead_TellsWhereItComesFrom(t *testing.T) {
	t.Parallel()
	facts := read(t, "AWSCluster",
		"spec: {network: {vpc: {cidrBlock: 10.50.0.0/16, secondaryCidrBlocks: [{ipv4CidrBlock: 100.64.0.0/16}]}}}")
	result, err := noproxy.Compose(noproxy.Input{Infrastructure: facts.Infrastructure})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"10.50.0.0/16\tinfrastructure\tAWSCluster prod, spec.network.vpc.cidrBlock\n",
		"100.64.0.0/16\tinfrastructure\tAWSCluster prod, spec.network.vpc.secondaryCidrBlocks[0].ipv4CidrBlock\n",
		"169.254.169.254\tmetadata\tAWSCluster metadata service\n",
	} {
		if !strings.Contains(result.Origins(1<<20), line) {
			t.Errorf("%q is not in:\n%s", line, result.Origins(1<<20))
		}
	}
}

func TestOf_HasMetadataOfIPv6ForClustersWithIPv6(t *testing.T) {
	t.Parallel()
	for pods, want := range map[string]bool{"192.0.2.0/24": false, "fd01::/48": true} {
		result, err := noproxy.Compose(noproxy.Input{
			PodCIDRs: []string{pods}, Infrastructure: infrastructure.Of("AWSCluster").Infrastructure,
		})
		if err != nil || strings.Contains(result.Value, ",fd00:ec2::254") != want {
			t.Errorf("%s: NO_PROXY %q, error %v", pods, result.Value, err)
		}
	}
}

func TestRead_SaysWhatFollows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		facts                   infrastructure.Facts
		pods, isRead            bool
		endpoint, unresolvedOne string
	}{
		"a kind alone":         {infrastructure.Of("AWSCluster"), false, false, "", ""},
		"no network yet":       {read(t, "AWSCluster", "spec: {region: eu}"), false, true, "", ""},
		"a network":            {read(t, "AWSCluster", "spec: {network: {vpc: {cidrBlock: 10.0.0.0/16}}}"), true, true, "", ""},
		"no VPC CNI":           {read(t, "OCICluster", "spec: {networkSpec: {vcn: {cidr: 10.0.0.0/16}}}"), false, true, "", ""},
		"an endpoint":          {read(t, "MetalStackCluster", "spec: {controlPlaneIP: 203.0.113.9}"), false, true, "203.0.113.9", ""},
		"a variable":           {read(t, "VSphereCluster", "spec: {server: '${VSPHERE_SERVER}'}"), false, true, "", "VSphereCluster prod, spec.server"},
		"a variable as prefix": {read(t, "ProxmoxCluster", "spec: {ipv4Config: {prefix: '${IP_PREFIX}'}}"), false, true, "", "ProxmoxCluster prod, spec.ipv4Config.prefix"},
	} {
		f, unresolved := test.facts, ""
		for _, place := range f.Unresolved {
			unresolved += place.String()
		}
		if f.CoversPods != test.pods || f.Read != test.isRead ||
			f.EndpointHost != test.endpoint || unresolved != test.unresolvedOne {
			t.Errorf("%s: covers Pods %t, read %t, endpoint %q, unresolved %q", name, f.CoversPods,
				f.Read, f.EndpointHost, unresolved)
		}
	}
}

func TestRead_IgnoresWhatIsNotANetworkOrHost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, object string
		want         []string
		warning      string
	}{
		"an object for a text":     {"VSphereCluster", "spec: {server: {host: a}}", nil, "VSphereCluster prod, spec.server: the value is not a string"},
		"a text for an object":     {"VSphereCluster", "spec: nothing", nil, "VSphereCluster prod, spec: the value is not an object"},
		"an object for a list":     {"OpenStackCluster", "spec: {managedSubnets: {cidr: 10.0.0.0/8}}", cloud(), "OpenStackCluster prod, spec.managedSubnets: the value is not a list"},
		"a list for a mapping":     {"GCPCluster", "spec: {network: {subnets: [{secondaryCidrBlocks: [10.0.0.0/8]}]}}", metadata(linkLocal, "metadata.google.internal", "metadata"), "secondaryCidrBlocks: the value is not an object"},
		"an invalid network":       {"HetznerCluster", "spec: {hcloudNetwork: {enabled: true, cidrBlock: 10.0.0.0/33}}", cloud(), "HetznerCluster prod, spec.hcloudNetwork.cidrBlock: the length of an IPv4 network is at most 32"},
		"a name for a network":     {"OpenStackCluster", "spec: {nodeCidr: example.com}", cloud(), "OpenStackCluster prod, spec.nodeCidr: the value is not a network"},
		"everything":               {"OpenStackCluster", "spec: {nodeCidr: 0.0.0.0/0}", cloud(), "spec.nodeCidr: the value covers a large part of the internet"},
		"a star":                   {"VSphereCluster", "spec: {server: '*'}", nil, "the value covers a large part of the internet"},
		"a top-level domain":       {"AzureCluster", "spec: {networkSpec: {privateDNSZoneName: com}}", cloud("168.63.129.16", ".internal.cloudapp.net"), "privateDNSZoneName: the value covers a large part of the internet"},
		"a line end":               {"VSphereCluster", `spec: {server: "a\nEnvironment=X=1"}`, nil, "the entry has control character U+000A"},
		"a shell":                  {"NutanixCluster", "spec: {prismCentral: {address: '$(id)'}}", nil, "the entry has character U+0024"},
		"a template":               {"NutanixCluster", "spec: {prismCentral: {address: '{{ x }}'}}", nil, "the entry has character U+007B"},
		"a comma":                  {"NutanixCluster", "spec: {prismCentral: {address: 'a.example,*'}}", nil, "the entry has character U+002C"},
		"a region with a line end": {"AWSCluster", `spec: {region: "eu\n,*"}`, aws(), "AWSCluster prod, spec.region: the entry has control character U+000A"},
		"a URL without a host":     {"VCDCluster", "spec: {site: 'vcd.example'}", nil, "VCDCluster prod, spec.site: the value is not a URL"},
		"a long text":              {"VSphereCluster", "spec: {server: " + strings.Repeat("a", 100_000) + "}", nil, "spec.server: "},
		"a prefix that is none":    {"ProxmoxCluster", "spec: {ipv4Config: {addresses: [10.0.0.1], prefix: 33}}", nil, "the value is not an address, a range or a network that has this prefix length"},
		"addresses that are none":  {"ProxmoxCluster", "spec: {ipv4Config: {addresses: [hello, 10.0.0.1], prefix: 24}}", nil, "the value is not an address, a range or a network that has this prefix length"},
		"a prefix that is a text":  {"ProxmoxCluster", "spec: {ipv4Config: {addresses: [10.0.0.1], prefix: x}}", nil, "spec.ipv4Config.prefix: the value is not a number"},
		"nothing":                  {"AWSCluster", "{}", aws(), ""},
		"empty texts":              {"AWSCluster", "spec: {region: ' ', network: {vpc: {cidrBlock: ''}}}", aws(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings := compose(t, read(t, test.kind, test.object))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := strings.Join(warnings, "\n"); !strings.Contains(text, test.warning) || test.warning == "" && text != "" {
				t.Errorf("warnings %s", text)
			}
		})
	}
}

func TestRead_IsBounded(t *testing.T) {
	t.Parallel()
	var subnets, wrong []any
	for i := range 4000 {
		subnets = append(subnets, map[string]any{"cidrBlock": fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)})
		wrong = append(wrong, map[string]any{"cidrBlock": []any{"\n", i}})
	}
	object := func(list []any) map[string]any {
		return map[string]any{"spec": map[string]any{"region": "eu-west-1", "network": map[string]any{"subnets": list}}}
	}
	facts := infrastructure.Read("AWSCluster", "prod", object(subnets))
	entries, warnings := compose(t, facts)
	if len(entries) != 3+64 || len(warnings) != 1 ||
		!strings.Contains(warnings[0],
			"subnets[64].cidrBlock: at most 64 values of one object are read; this one and those after it are not") {
		t.Errorf("%d entries, warnings %q", len(entries), warnings)
	}
	if _, warnings := compose(t, infrastructure.Read("AWSCluster", "prod", object(wrong))); len(warnings) != 8 {
		t.Errorf("%d warnings", len(warnings))
	}
	again := infrastructure.Read("AWSCluster", "prod", object(subnets))
	if diff := cmp.Diff(facts, again); diff != "" {
		t.Errorf("the same object tells something else:\n%s", diff)
	}
}

// TestRead_ReadsAThousandValues has a network behind items without one.
func TestRead_ReadsAThousandValues(t *testing.T) {
	t.Parallel()
	network := map[string]any{"cidrBlock": "10.0.0.0/16"}
	for items, want := range map[int]bool{998: true, 999: true, 1000: false, 1001: false} {
		subnets := append(slices.Repeat([]any{map[string]any{}}, items), network)
		entries, _ := compose(t, infrastructure.Read("AWSCluster", "prod",
			map[string]any{"spec": map[string]any{"network": map[string]any{"subnets": subnets}}}))
		if got := strings.Contains(strings.Join(entries, " "), "10.0.0.0/16"); got != want {
			t.Errorf("behind %d items the network is read: %v", items, got)
		}
	}
	for items, want := range map[int]bool{997: true, 998: false} {
		blocks := map[string]any{"z": "10.0.0.0/16"}
		for i := range items {
			blocks[fmt.Sprintf("a%04d", i)] = nil
		}
		entries, _ := compose(t, infrastructure.Read("GCPCluster", "prod", map[string]any{"spec": map[string]any{
			"network": map[string]any{"subnets": []any{map[string]any{"secondaryCidrBlocks": blocks}}},
		}}))
		if got := strings.Contains(strings.Join(entries, " "), "10.0.0.0/16"); got != want {
			t.Errorf("behind %d keys the network is read: %v", items, got)
		}
	}
}
