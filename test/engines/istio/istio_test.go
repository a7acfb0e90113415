// Package istio decodes the ServiceEntries that render prints into the types of Istio.
package istio

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networkingv1 "istio.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// printed is a golden file of render with a proxy that has an address and one that has a name.
const printed = "../../../internal/offline/render/testdata/publish/printed.yaml"

// TestServiceEntries_AreStrictlyThoseOfIstio finds keys that Istio does not know, and what its webhook refuses: an
// address as a host, a network as an address of entries that are resolved by DNS, and ports without a protocol.
func TestServiceEntries_AreStrictlyThoseOfIstio(t *testing.T) {
	text, err := os.ReadFile(printed)
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			APIVersion, Kind string
			Spec             json.RawMessage
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil || object.Kind != "ServiceEntry" {
			continue
		}
		entries++
		var spec networkingv1.ServiceEntry
		if err := protojson.Unmarshal(object.Spec, &spec); err != nil {
			t.Fatal(err)
		}
		if object.APIVersion != "networking.istio.io/v1" || spec.GetLocation() != networkingv1.ServiceEntry_MESH_EXTERNAL {
			t.Errorf("%s: %v", object.APIVersion, &spec)
		}
		for _, host := range spec.GetHosts() {
			if _, err := netip.ParseAddr(host); err == nil || strings.Contains(host, ":") {
				t.Errorf("host %s is not a name", host)
			}
		}
		if byName := spec.GetResolution() == networkingv1.ServiceEntry_DNS; byName == (len(spec.GetAddresses()) > 0) {
			t.Errorf("a name is resolved, an address is given: %v", &spec)
		}
		if port := spec.GetPorts()[0]; port.GetName() != "tcp" || port.GetProtocol() != "TCP" || port.GetNumber() == 0 {
			t.Errorf("the port is %v", port)
		}
	}
	if entries != 2 {
		t.Errorf("%d ServiceEntries", entries)
	}
}
