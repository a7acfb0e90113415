package faults

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// seedVariable repeats the decisions of a run of TestManager_IsKilledAgainAndAgain; it cannot repeat its timing.
const seedVariable = "FAULTS_SEED"

func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(seedVariable)
	if text == "" {
		return rand.Uint64() //nolint:gosec // a dice
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	return number
}

func TestManager_IsKilledAgainAndAgain(t *testing.T) {
	const (
		size  = 12
		kills = 10
	)
	f := newFleet(t, size)
	t.Parallel()
	f.create()
	f.useProxy(proxyURL)
	start := seed(t)
	t.Logf("%s=%d", seedVariable, start)
	dice := rand.New(rand.NewPCG(start, 0)) //nolint:gosec // a dice
	all := setMark(t, f.ns)
	for i := range kills {
		// A slow hand makes sure that the kill comes in the middle of something.
		p := launch(t, f.ns, noResync, "--kube-api-qps=60", "--kube-api-burst=1")
		if i%2 == 0 { // the others have to do with it while they start
			p.ready()
		}
		f.disturb(dice)
		time.Sleep(time.Duration(dice.IntN(800)) * time.Millisecond)
		p.kill()
	}
	survivors := len(all.since(request.isOfSpec, request.done))
	t.Logf("%d bootstrap objects were written by those that were killed", survivors)
	if survivors == 0 {
		t.Error("every manager was killed before it had written anything")
	}

	p := manager(t, f.ns, noResync)
	f.eventuallyAsRendered()
	p.stop()
	staysQuiet(t, f.ns)

	p = manager(t, f.ns, noResync)
	f.label(true)
	f.eventuallyAsRendered()
	f.label(false)
	f.eventuallyAsBefore()
	p.stop()
	staysQuiet(t, f.ns)
}

// TestManager_RemovesTheProxyAfterAKillAtTheFirstPatch has a Secret, which is written before, show the next process what
// the killed one had begun.
func TestManager_RemovesTheProxyAfterAKillAtTheFirstPatch(t *testing.T) {
	const size = 4
	f := newFleet(t, size)
	t.Parallel()
	f.create(enabled)
	patched := setMark(t, f.ns)
	p := launch(t, f.ns, noResync, "--kube-api-qps=5", "--kube-api-burst=1")
	eventually(t, "first patch", func() string {
		if len(patched.since(request.isOfSpec, request.done)) == 0 {
			return "none"
		}
		return ""
	})
	p.kill()
	f.label(false)
	if f.compare(f.untouched(), f.state()) == "" {
		t.Fatal("the killed manager has patched nothing")
	}

	p = manager(t, f.ns, noResync)
	f.eventuallyAsBefore()
	p.stop()
	staysQuiet(t, f.ns)
}

// disturb is what users do: every other Cluster is enabled, changed or disabled, and now and then the proxy of all
// changes.
func (f *fleet) disturb(dice *rand.Rand) {
	f.t.Helper()
	for _, i := range dice.Perm(len(f.names))[:len(f.names)/2] {
		text := targetsPatch("containerd,kubelet")
		switch dice.IntN(6) {
		case 0, 1:
			text = labelPatch(true)
		case 2, 3:
			text = labelPatch(false)
		case 4:
			text = targetsPatch("trust")
		}
		f.merge(&clusterv1.Cluster{ObjectMeta: f.meta(f.names[i])}, text)
	}
	if dice.IntN(4) == 0 {
		f.useProxy("http://proxy-" + strconv.Itoa(dice.IntN(100)) + ".example.com:3128")
	}
}
