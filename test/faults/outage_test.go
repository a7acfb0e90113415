package faults

import (
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// TestAPIServer_StopsWhileClustersAreConfigured is not parallel to the others: they have the same API server.
func TestAPIServer_StopsWhileClustersAreConfigured(t *testing.T) {
	const size = 50
	f := newFleet(t, size)
	f.create()
	// A slow hand makes sure that there is something left to do.
	p := manager(t, f.ns, noResync, "--kube-api-qps=40", "--kube-api-burst=1")
	start := setMark(t, f.ns)
	f.label(`"true"`)
	eventually(t, "progress of the manager", func() string {
		if len(start.since(ofSpec)) < size {
			return "fewer objects than Clusters are patched"
		}
		return ""
	})

	if err := shared.Cluster.KillServer(); err != nil {
		t.Fatal(err)
	}
	before := len(start.since(ofSpec, mgmt.Request.Succeeded))
	if before >= 2*size {
		t.Fatalf("all %d objects were patched before the API server stopped", before)
	}
	time.Sleep(3 * time.Second)
	if err := shared.Cluster.StartServer(); err != nil {
		t.Fatal(err)
	}
	if p.hasExited() { // without a lease to lose there is no reason to
		t.Fatalf("the manager did not survive: %s", p.cmd.ProcessState)
	}
	t.Logf("%d of %d objects were patched when the API server stopped", before, 2*size)
	f.eventuallyHasProxy()
	if writes := len(start.since(ofSpec, mgmt.Request.Succeeded)); writes > 2*size {
		t.Errorf("%d writes of %d objects", writes, 2*size)
	}
	p.stop()
	f.staysQuiet()

	p = manager(t, f.ns, noResync)
	f.label("null")
	f.eventuallyAsBefore()
	p.stop()
	f.staysQuiet()
}
