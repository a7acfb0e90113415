package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

var errLost = errors.New("the answer was lost")

// cluster has Leases and Nodes as an API server has them: an update of what has changed is a conflict.
type cluster struct {
	mutex   sync.Mutex
	leases  map[int]*coordinationv1.Lease
	updates int
	// fails, if it is set, is asked before each request: "get", "update" or "self".
	fails func(request string) error
	// loses has the next update come through without an answer.
	loses bool
	// most is the largest number of holders that there was.
	most, mostControlPlane int
}

func newCluster(slots int) *cluster {
	c := &cluster{leases: map[int]*coordinationv1.Lease{}}
	for slot := range slots {
		c.leases[slot] = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(slot), ResourceVersion: "1"}}
	}
	return c
}

// hold has a node hold a Lease.
func (c *cluster) hold(slot int, node string) *cluster {
	c.leases[slot].Spec.HolderIdentity = &node
	c.leases[slot].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID("uid of " + node)}}
	return c
}

// holders are those of the Leases, in order.
func (c *cluster) holders() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var names []string
	for slot := range len(c.leases) {
		name := "-"
		if lease := c.leases[slot]; holderOf(lease) != "" {
			name = holderOf(lease)
			if o := lease.OwnerReferences; len(o) != 1 || o[0].UID != types.UID("uid of "+name) || o[0].Kind != "Node" || o[0].APIVersion != "v1" || o[0].Name != name {
				name += " without its Node"
			}
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// member is a node of a cluster. Its name begins with cp if it has a control plane.
type member struct {
	*cluster
	name  string
	ready corev1.ConditionStatus
}

func (m member) self(ctx context.Context) (*corev1.Node, error) {
	if err := m.asked(ctx, "self"); err != nil {
		return nil, err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID("uid of " + m.name)}}
	if strings.HasPrefix(m.name, "cp") {
		n.Labels = map[string]string{labelControlPlane: ""}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: m.ready, Reason: "KubeletNotReady", Message: "no runtime"}}
	return n, nil
}

func (m member) asked(ctx context.Context, request string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w", ctx.Err())
	}
	if m.fails != nil {
		return m.fails(request)
	}
	return nil
}

var leasesResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (m member) lease(ctx context.Context, slot int) (*coordinationv1.Lease, error) {
	if err := m.asked(ctx, "get"); err != nil {
		return nil, err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	lease, found := m.leases[slot]
	if !found {
		return nil, apierrors.NewNotFound(leasesResource, LeaseName(slot))
	}
	return lease.DeepCopy(), nil
}

func (m member) update(ctx context.Context, lease *coordinationv1.Lease) error {
	if err := m.asked(ctx, "update"); err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for slot, stored := range m.leases {
		if stored.Name != lease.Name {
			continue
		}
		if stored.ResourceVersion != lease.ResourceVersion {
			return apierrors.NewConflict(leasesResource, lease.Name, errors.New("it has changed"))
		}
		m.updates++
		m.leases[slot] = lease.DeepCopy()
		m.leases[slot].ResourceVersion += "1"
		count, controlPlane := 0, 0
		for _, lease := range m.leases {
			if holder := holderOf(lease); holder != "" {
				count++
				if strings.HasPrefix(holder, "cp") {
					controlPlane++
				}
			}
		}
		m.most, m.mostControlPlane = max(m.most, count), max(m.mostControlPlane, controlPlane)
		if m.loses {
			m.loses = false
			return errLost
		}
		return nil
	}
	return apierrors.NewNotFound(leasesResource, lease.Name)
}

// turn is that of a node that is ready.
func (c *cluster) turn(name string, slots int) *Turn {
	return &Turn{api: member{c, name, corev1.ConditionTrue}, node: name, slots: slots, log: io.Discard, pause: time.Millisecond}
}

// once fails the first requests of a kind.
func once(kind string, times int, err error) func(string) error {
	var count atomic.Int32
	return func(request string) error {
		if request == kind && int(count.Add(1)) <= times {
			return err
		}
		return nil
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(leasesResource, "x", errors.New("it has changed"))
	for name, test := range map[string]struct {
		node    string
		cluster *cluster
		slots   int
		want    string // "" if it waits
		updates int
	}{
		"one that is free":             {"a", newCluster(1), 1, "a", 1},
		"the last one":                 {"a", newCluster(3), 3, "- - a", 1},
		"the first one last":           {"a", newCluster(3).hold(1, "b").hold(2, "c"), 3, "a b c", 1},
		"none is free":                 {"a", newCluster(2).hold(0, "b").hold(1, "c"), 2, "", 0},
		"no more than there are":       {"a", newCluster(2).hold(0, "b"), 1, "", 0},
		"its own":                      {"a", newCluster(9).hold(3, "a"), 9, "- - - a - - - - -", 0},
		"the control plane":            {"cp1", newCluster(3), 3, "cp1 - -", 1},
		"the control plane waits":      {"cp1", newCluster(3).hold(0, "cp2"), 3, "", 0},
		"a node beside one of it":      {"a", newCluster(2).hold(0, "cp2"), 2, "cp2 a", 1},
		"the answers are lost":         {"a", &cluster{leases: newCluster(3).leases, loses: true}, 3, "- - a", 1},
		"errors":                       {"a", &cluster{leases: newCluster(1).leases, fails: once("get", 3, errLost)}, 1, "a", 1},
		"the Node is not read":         {"a", &cluster{leases: newCluster(1).leases, fails: once("self", 3, errLost)}, 1, "a", 1},
		"somebody is faster":           {"a", &cluster{leases: newCluster(2).leases, fails: once("update", 1, conflict)}, 2, "a -", 1},
		"it is gone before the update": {"a", &cluster{leases: newCluster(1).leases, fails: once("update", 2, apierrors.NewNotFound(leasesResource, "x"))}, 1, "a", 1},
		"there are many":               {"a", full(100, 41), 100, strings.Repeat("b ", 41) + "a" + strings.Repeat(" b", 58), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.cluster.holders()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.want == "" {
				var looks atomic.Int32
				test.cluster.fails = func(request string) error {
					if request == "get" && looks.Add(1) > 20 {
						cancel()
					}
					return nil
				}
				if err := test.cluster.turn(test.node, test.slots).Take(ctx); err == nil || err.Error() != "ended while waiting for a turn" {
					t.Error(err)
				}
				test.want = before
			} else if err := test.cluster.turn(test.node, test.slots).Take(ctx); err != nil {
				t.Fatal(err)
			}
			if got := test.cluster.holders(); got != test.want || test.cluster.updates != test.updates {
				t.Errorf("held by %s, want %s; %d updates", got, test.want, test.cluster.updates)
			}
		})
	}
}

// full is a cluster whose slots are held, but for one.
func full(slots, free int) *cluster {
	c := newCluster(slots)
	for slot := range slots {
		if slot != free {
			c.hold(slot, "b")
		}
	}
	return c
}

// The garbage collector has not seen yet that the Node is another one: the Lease would go.
func TestTake_ForAnotherNodeOfTheSameName(t *testing.T) {
	t.Parallel()
	c := newCluster(2).hold(1, "a")
	c.leases[1].OwnerReferences[0].UID = "of an earlier one"
	if err := c.turn("a", 2).Take(t.Context()); err != nil || c.holders() != "- a" {
		t.Errorf("%v, held by %s", err, c.holders())
	}
}

func TestTake_WaitsForALeaseThatTheManagerMakes(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	looks := 0
	c.fails = func(string) error {
		if looks++; looks == 8 { // one at a time
			c.leases[0] = newCluster(1).leases[0]
		}
		return nil
	}
	if err := c.turn("a", 1).Take(t.Context()); err != nil || c.holders() != "a" {
		t.Errorf("%v, held by %s", err, c.holders())
	}
}

func TestTurn_NodesChangeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for slots := 1; slots <= 3; slots++ {
		c := newCluster(slots)
		var running sync.WaitGroup
		var changed atomic.Int32
		for i := range 12 {
			name := fmt.Sprint(map[bool]string{true: "cp", false: "worker"}[i < 3], i)
			running.Go(func() {
				turn := c.turn(name, slots)
				if err := errors.Join(turn.Take(t.Context()), turn.End(t.Context())); err != nil {
					t.Error(err)
				}
				changed.Add(1)
			})
		}
		running.Wait()
		if c.most > slots || c.mostControlPlane > 1 || changed.Load() != 12 || strings.Trim(c.holders(), "- ") != "" {
			t.Errorf("%d slots: %d at a time, %d of the control plane, %d changed, held by %s", slots, c.most, c.mostControlPlane, changed.Load(), c.holders())
		}
	}
}

func TestEnd_ReleasesWhatTheNodeHolds(t *testing.T) {
	t.Parallel()
	c := newCluster(7).hold(0, "b").hold(2, "a").hold(6, "a")
	c.leases[0].Annotations = map[string]string{AnnotationFailure: "of b"}
	turn := c.turn("a", 7)
	turn.Fail(t.Context(), errors.New("the proxy\nrefuses "+strings.Repeat("x", 300)))
	turn.Fail(t.Context(), errors.New("the proxy\nrefuses "+strings.Repeat("x", 300)))
	if text := c.leases[2].Annotations[AnnotationFailure]; !strings.HasPrefix(text, "the proxy") || strings.Contains(text, "\n") || len(text) > 200+len("…") || c.updates != 2 {
		t.Errorf("failed with %q, %d updates", text, c.updates)
	}
	c.fails = once("update", 1, apierrors.NewConflict(leasesResource, "x", errors.New("it has changed")))
	if err := turn.End(t.Context()); err != nil || c.holders() != "b - - - - - -" {
		t.Errorf("%v, held by %s", err, c.holders())
	}
	for slot, want := range map[int]int{0: 1, 2: 0, 6: 0} {
		if lease := c.leases[slot]; len(lease.Annotations) != want || len(lease.OwnerReferences) != want {
			t.Errorf("Lease %d: %v", slot, lease)
		}
	}
	if err := turn.End(t.Context()); err != nil || c.updates != 4 {
		t.Errorf("%v, %d updates", err, c.updates)
	}
}

func TestEnd_WaitsUntilTheNodeIsReady(t *testing.T) {
	t.Parallel()
	c := newCluster(1).hold(0, "a")
	turn := c.turn("a", 1)
	turn.api = member{c, "a", corev1.ConditionFalse}
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	c.fails = func(string) error {
		if asked++; asked > 3 {
			cancel()
		}
		return nil
	}
	const want = "waiting until the Node is ready: KubeletNotReady: no runtime"
	if err := turn.End(ctx); err == nil || err.Error() != want || c.holders() != "a" {
		t.Errorf("%v, held by %s", err, c.holders())
	}
}

// apiServer answers requests of a turn.
func apiServer(t *testing.T, answer http.HandlerFunc) (*server, *rest.Config) {
	t.Helper()
	listening := httptest.NewServer(answer)
	t.Cleanup(listening.Close)
	config := &rest.Config{Host: listening.URL, BearerToken: "t0ken"}
	s, err := newServer(config, "a")
	if err != nil {
		t.Fatal(err)
	}
	return s, config
}

func TestServer_AsksByNameWithoutAProxy(t *testing.T) {
	t.Parallel()
	var asked []string
	status := http.StatusOK
	s, config := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Accept-Encoding")+" "+r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		switch {
		case status == http.StatusConflict:
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}`)
		case strings.Contains(r.URL.Path, "nodes"):
			_, _ = io.WriteString(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a", "uid": "u"}}`)
		default:
			_, _ = io.WriteString(w, `{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "capi-proxy-patcher-slot-4", "resourceVersion": "7"}}`)
		}
	})
	if proxy, err := config.Proxy(&http.Request{}); proxy != nil || err != nil {
		t.Errorf("asks through %v, %v", proxy, err)
	}
	self, err := s.self(t.Context())
	if err != nil || self.UID != "u" {
		t.Errorf("%v, %v", self, err)
	}
	lease, err := s.lease(t.Context(), 4)
	if err != nil || lease.ResourceVersion != "7" {
		t.Fatalf("%v, %v", lease, err)
	}
	if err := s.update(t.Context(), lease); err != nil {
		t.Error(err)
	}
	status = http.StatusConflict
	if err := s.update(t.Context(), lease); !apierrors.IsConflict(err) {
		t.Error(err)
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/capi-proxy-patcher-slot-4  Bearer t0ken\n"
	if got, want := strings.Join(asked, "\n")+"\n", "GET /api/v1/nodes/a  Bearer t0ken\nGET "+leases+"PUT "+leases+"PUT "+leases; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestServer_BoundsWhatItIsAnswered(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(other.Close)
	for name, answer := range map[string]http.HandlerFunc{
		"an endless answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "`)
			sent := 0
			for r.Context().Err() == nil {
				n, err := w.Write(make([]byte, 64<<10))
				if sent += n; err != nil {
					break
				}
			}
			if sent > 16<<20 { // what buffers take, too
				t.Errorf("%d bytes are read", sent)
			}
		},
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"wait a year": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "31536000")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := apiServer(t, answer)
			if s.limit = 10 * time.Second; name == "no answer" || name == "wait a year" {
				s.limit = 50 * time.Millisecond
			}
			if _, err := s.self(t.Context()); err == nil || followed.Load() > 0 {
				t.Errorf("%v, followed %d times", err, followed.Load())
			}
		})
	}
}

// TestApply_TakesATurnToChange applies, fails, and watches on a node whose services read nothing.
func TestApply_TakesATurnToChange(t *testing.T) {
	t.Parallel()
	o := Options{Root: t.TempDir(), From: t.TempDir(), State: t.TempDir()}
	mount := func(proxy, endpoint string) {
		recipe, err := patch.NewRecipe(patch.Options{Targets: []contract.Target{contract.TargetCommands}})
		if err != nil {
			t.Fatal(err)
		}
		data, err := patch.NodeData(map[string][]byte{
			contract.KeyProxyEnv:  []byte(systemd.EnvironmentFileHeader + "\nHTTP_PROXY=\"" + proxy + "\"\n"),
			contract.KeyReadiness: []byte(endpoint),
		}, recipe)
		if err != nil {
			t.Fatal(err)
		}
		for key, content := range data {
			if err := os.WriteFile(filepath.Join(o.From, key), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(o.Root, "etc"), 0o750), os.Mkdir(filepath.Join(o.Root, "run"), 0o750)); err != nil {
		t.Fatal(err)
	}
	c := newCluster(1)
	turn := c.turn("a", 1)
	run := func(ctx context.Context, name, want, holders, failure string, updates int) {
		t.Helper()
		got := ""
		if err := Apply(ctx, o, turn, io.Discard); err != nil {
			got = err.Error()
		}
		if got != want || c.holders() != holders || c.leases[0].Annotations[AnnotationFailure] != failure || c.updates != updates {
			t.Errorf("%s: says %q, held by %s, %d updates, failure %q", name, got, c.holders(), c.updates, c.leases[0].Annotations[AnnotationFailure])
		}
	}
	mount("http://p:1", "")
	c.hold(0, "b")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	run(ended, "another node has the slot", "ended while waiting for a turn", "b", "", 0)
	if left, err := os.ReadDir(filepath.Join(o.Root, "etc")); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
	c.leases[0] = newCluster(1).leases[0]
	run(t.Context(), "it is free", "", "a", "", 1)
	if err := Watch(ended, o, turn, time.Hour); err != nil || c.holders() != "a" {
		t.Errorf("ended before the turn: %v, held by %s", err, c.holders())
	}
	watching, stop := context.WithCancel(t.Context())
	ending := make(chan struct{})
	go func() {
		defer close(ending)
		defer stop()
		wait.Rule{Still: 10 * time.Second, Poll: time.Millisecond}.Until(t, "the end of the turn", func() string {
			return strings.Trim(c.holders(), "-")
		})
	}()
	if err := Watch(watching, o, turn, time.Hour); err != nil || c.holders() != "-" {
		t.Errorf("watching: %v, held by %s", err, c.holders())
	}
	<-ending
	c.fails = func(string) error { t.Error("a node without a change asks"); return nil }
	run(t.Context(), "nothing to do", "", "-", "", 2)
	c.fails = nil
	const refused = "readiness endpoints do not answer with the mounted values: http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"
	mount("http://127.0.0.1:1", "http://127.0.0.1:1")
	run(t.Context(), "it fails", refused, "a", refused, 4)
	run(t.Context(), "it fails again", refused, "a", refused, 4)
	mount("http://p:2", "")
	run(t.Context(), "the next version", "", "a", refused, 4)
	if err := os.Remove(filepath.Join(o.Root, contract.PathProxyEnv)); err != nil {
		t.Fatal(err)
	}
	if err := Watch(t.Context(), o, turn, time.Hour); err == nil || err.Error() != "not as in the mounted Secret: "+contract.PathProxyEnv || c.holders() != "a" {
		t.Errorf("the files differ: %v, held by %s", err, c.holders())
	}
}
