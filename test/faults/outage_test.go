package faults

import (
	"testing"
	"time"
)

// TestAPIServer_StopsWhileClustersAreConfigured is not parallel to the others: they have the same API server.
func TestAPIServer_StopsWhileClustersAreConfigured(t *testing.T) {
	const size = 50
	f := newFleet(t, size)
	f.create()
	// A slow hand makes sure that there is something left to do.
	p := manager(t, f.ns, noResync, "--kube-api-qps=40", "--kube-api-burst=1")
	start := setMark(t, f.ns)
	f.label(true)
	eventually(t, "progress of the manager", func() string {
		if len(start.since(request.isOfSpec)) < size {
			return "fewer objects than Clusters are patched"
		}
		return ""
	})

	if err := shared.cluster.KillServer(); err != nil {
		t.Fatal(err)
	}
	before := len(start.since(request.isOfSpec, request.done))
	if before >= 3*size {
		t.Fatalf("all %d objects were patched before the API server stopped", before)
	}
	time.Sleep(3 * time.Second)
	if err := shared.cluster.StartServer(); err != nil {
		t.Fatal(err)
	}
	if p.hasExited() { // without a lease to lose there is no reason to
		t.Fatalf("the manager did not survive: %s", p.cmd.ProcessState)
	}
	t.Logf("%d of %d objects were patched when the API server stopped", before, 3*size)
	f.eventuallyHasProxy()
	if writes := len(start.since(request.isOfSpec, request.done)); writes > 3*size {
		t.Errorf("%d writes of %d objects", writes, 3*size)
	}
	p.stop()
	staysQuiet(t, f.ns)

	p = manager(t, f.ns, noResync)
	f.label(false)
	f.eventuallyAsBefore()
	p.stop()
	staysQuiet(t, f.ns)
}
