package faults

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// lease returns the lease of the namespace, as far as it exists.
func (f *fleet) lease() coordinationv1.LeaseSpec {
	f.t.Helper()
	lease := &coordinationv1.Lease{}
	err := shared.Client.Get(f.t.Context(), client.ObjectKey{Namespace: f.ns, Name: contract.Domain}, lease)
	if client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
	return lease.Spec
}

// leader returns who holds the lease of the namespace, or "".
func (f *fleet) leader() string {
	f.t.Helper()
	return ptr.Deref(f.lease().HolderIdentity, "")
}

// eventuallyRenewed waits until the leader has just renewed its lease. A manager that ends while it renews cannot release the
// lease: client-go's two writes conflict.
func (f *fleet) eventuallyRenewed() {
	f.t.Helper()
	before := f.lease().RenewTime
	eventually(f.t, "a renewed lease", func() string {
		if f.lease().RenewTime.Equal(before) {
			return "the leader has not renewed it"
		}
		return ""
	})
}

// eventuallyLed waits until a manager leads.
func (f *fleet) eventuallyLed() {
	f.t.Helper()
	eventually(f.t, "a leader", func() string {
		if f.leader() == "" {
			return "nobody leads"
		}
		return ""
	})
}

// TestLeader_AnswersWhatItHasBegunToRead ends a manager in the middle of a request to its webhooks, which has some seconds.
func TestLeader_AnswersWhatItHasBegunToRead(t *testing.T) {
	f := newFleet(t, 1)
	t.Parallel()
	webhooks, flags := f.serveWebhooks("../../config/default")
	p := manager(t, f.ns, append(flags, noResync, "--leader-elect", "--leader-elect-namespace", f.ns)...)
	f.eventuallyLed()
	const body = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE"}}`
	address := net.JoinHostPort(webhooks.Host, strconv.Itoa(webhooks.Port))
	client := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // who answers is not in question
	connection, err := client.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	send := func(text string) {
		if _, err := io.WriteString(connection, text); err != nil {
			t.Fatal(err)
		}
	}
	send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", "/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfigtemplate", len(body)))
	answers := bufio.NewReader(connection)
	begun, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("the webhooks do not read the request: %v", err)
	}
	if _ = begun.Body.Close(); begun.StatusCode != http.StatusContinue {
		t.Fatalf("the webhooks answer %s before the request is complete", begun.Status)
	}
	send(body[:1])
	f.eventuallyRenewed()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	send(body[1:])
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("the request that was under way is not answered: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("it is answered with %s", answer.Status)
	}
	<-p.exited
	if status := p.cmd.ProcessState; !status.Success() {
		t.Errorf("the manager has ended with %s", status)
	}
	if holder := f.leader(); holder != "" {
		t.Errorf("%s still has the Lease", holder)
	}
}

func TestLeader_IsKilledWhileASecretFansOut(t *testing.T) {
	const (
		size = 60
		// inFlight is how many writes the leader may have under way at once: its concurrency.
		inFlight = 10
	)
	f := newFleet(t, size)
	t.Parallel()
	f.useProxy(proxyURL)
	f.create(enabled)
	flags := []string{noResync, "--leader-elect", "--leader-elect-namespace", f.ns, "--kube-api-qps=20", "--kube-api-burst=5"}
	first := manager(t, f.ns, flags...)
	f.eventuallyHasProxy()
	holder := f.leader()
	second := manager(t, f.ns, flags...)

	from := setMark(t, f.ns)
	f.useProxy(otherProxyURL)
	eventually(t, "progress of the leader", func() string {
		if len(from.since(ofSecret, mgmt.Request.Succeeded)) < size/3 {
			return "less than a third is written"
		}
		return ""
	})
	first.kill()
	time.Sleep(time.Second) // what was in progress completes
	done := len(from.since(ofSecret, mgmt.Request.Succeeded))
	if done > size*2/3 {
		t.Fatalf("%d of %d Secrets were written when the leader was killed: that was not the middle", done, size)
	}
	if now := f.leader(); now != holder {
		t.Fatalf("%s led, and not %s, when the leader was killed", now, holder)
	}
	f.eventuallyHasProxy()
	if now := f.leader(); now == holder {
		t.Errorf("%s still leads", now)
	}
	// Of a write that was under way when the leader was killed, the log may say that nobody took the answer.
	writes, refused := len(from.since(ofSecret, mgmt.Request.Succeeded)), len(from.since(ofSecret, refused))
	if writes < size-inFlight || writes > size {
		t.Errorf("%d writes of %d Secrets", writes, size)
	}
	// A Cluster that is looked at again before the cache has its last write tries that once more, in vain.
	if refused > size {
		t.Errorf("%d writes of %d Secrets were refused", refused, size)
	}
	if others := len(from.since(ofSecret)) - writes - refused; others > inFlight {
		t.Errorf("%d requests ended in another way", others)
	}
	t.Logf("%d refused", refused)
	t.Logf("%d Secrets were written by the first, %d by the second", done, writes-done)
	second.stop()
	f.staysQuiet(flags...)
}

// TestLeader_IsNotNeededToAdmit has a manager that does not lead admit objects: what they get depends on what its caches
// hold, and the API server asks any of the managers.
func TestLeader_IsNotNeededToAdmit(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	election := []string{noResync, "--leader-elect", "--leader-elect-namespace", f.ns}
	leads := manager(t, f.ns, election...)
	f.eventuallyLed()
	holder := f.leader()
	_, flags := f.serveWebhooks("testdata/webhooks")
	waits := manager(t, f.ns, append(flags, election...)...)
	f.createAdmitted()
	if now := f.leader(); now != holder {
		t.Fatalf("%s leads, and not %s", now, holder)
	}
	waits.stop()
	leads.stop()
}
