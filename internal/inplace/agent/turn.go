package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

const (
	// MaxSlots is how many nodes may change at a time.
	MaxSlots = 100
	// AnnotationFailure is why the node that holds a Lease has failed, on one line. The agent writes it, and removes it
	// with the holder.
	AnnotationFailure = "capi-proxy-patcher.io/failure"

	labelControlPlane = "node-role.kubernetes.io/control-plane"

	// requestTime and maxResponse bound what the API server answers.
	requestTime, maxResponse = 10 * time.Second, 1 << 20
	// turnPause is the time between two looks at Leases, maxTurnPause the longest one after errors, turnLooks at how
	// many Leases one look is.
	turnPause, maxTurnPause, turnLooks = 5 * time.Second, time.Minute, 5
	// endTime is how long the end of a turn may take, failTime how long telling a failure may.
	endTime, failTime = 5 * time.Minute, 30 * time.Second
)

// SlotPrefix begins the names of the Leases of slots.
const SlotPrefix = contract.Name + "-slot-"

// LeaseName returns the name of the Lease of a slot, which counts from 0.
func LeaseName(slot int) string { return SlotPrefix + strconv.Itoa(slot) }

// Turn is by what the nodes of a cluster take turns: a node changes while it holds one of the Leases, the slots. The
// manager makes them. A Lease that is held belongs to its Node: the garbage collector deletes it with a Node that is
// gone, and the manager makes it again. Nodes of the control plane take slot 0 only, so that two of them never change
// at a time.
//
// A node that fails keeps its slot, so a bad version reaches no further node.
type Turn struct {
	api   turns
	node  string
	slots int
	log   io.Writer
	pause time.Duration
}

// turns are the requests of a Turn.
type turns interface {
	self(ctx context.Context) (*corev1.Node, error)
	lease(ctx context.Context, slot int) (*coordinationv1.Lease, error)
	update(ctx context.Context, lease *coordinationv1.Lease) error
}

// InCluster returns the turn of a node, with the credentials of the Pod that this process runs in.
func InCluster(node string, slots int, log io.Writer) (*Turn, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the Pod: %w", err)
	}
	api, err := newServer(config, node)
	if err != nil {
		return nil, err
	}
	return &Turn{api: api, node: node, slots: slots, log: log, pause: turnPause}, nil
}

// server is the API server.
type server struct {
	leases coordinationclient.LeaseInterface
	nodes  coreclient.NodeInterface
	node   string
	limit  time.Duration // of one request
}

// newServer returns a server that is asked without a proxy, and whose answers are bounded and follow no redirect.
func newServer(config *rest.Config, node string) (*server, error) {
	config.UserAgent, config.DisableCompression, config.WarningHandler = contract.Name, true, rest.NoWarnings{}
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // none
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	coordination, err := coordinationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	core, err := coreclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return &server{
		leases: coordination.Leases(metav1.NamespaceSystem), nodes: core.Nodes(), node: node, limit: requestTime,
	}, nil
}

// bounded cuts answers off.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxResponse), response.Body}
	}
	return response, err //nolint:wrapcheck // client-go wraps it
}

func (s *server) self(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.nodes.Get(ctx, s.node, metav1.GetOptions{}) //nolint:wrapcheck // Turn says what was asked
}

func (s *server) lease(ctx context.Context, slot int) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.leases.Get(ctx, LeaseName(slot), metav1.GetOptions{}) //nolint:wrapcheck // Turn says what was asked
}

func (s *server) update(ctx context.Context, lease *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	_, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err //nolint:wrapcheck // Turn says what was asked
}

// Take waits until the node holds a slot, as long as ctx lasts. A slot that the node holds already is its own.
func (t *Turn) Take(ctx context.Context) error {
	known, next := false, 0 // that the node holds none, and where to look
	_, taken := t.until(ctx, func() (taken bool, why string, err error) {
		defer func() { known = known && err == nil }() // an update may have come through
		self, err := t.api.self(ctx)
		if err != nil {
			return false, "", err
		}
		if !known {
			held, err := t.held(ctx)
			if err != nil {
				return false, "", err
			}
			if len(held) > 0 {
				taken, err = t.claim(ctx, held[0], self)
				return taken, "", err
			}
			known = true
		}
		looks := min(turnLooks, t.slots)
		if _, controlPlane := self.Labels[labelControlPlane]; controlPlane {
			next, looks = t.slots-1, 1
		}
		var holders []string
		for ; looks > 0; looks, next = looks-1, next+1 {
			lease, err := t.api.lease(ctx, t.slots-1-next%t.slots) // slot 0 last
			switch {
			case apierrors.IsNotFound(err): // the manager makes it
			case err != nil:
				return false, "", err
			case holderOf(lease) != "":
				holders = append(holders, holderOf(lease))
			default:
				if taken, err := t.claim(ctx, lease, self); taken || err != nil {
					return taken, "", err
				}
			}
		}
		why = "waiting for a turn; nodes that have one: " + cmp.Or(strings.Join(holders, ", "), "none")
		return false, why, nil
	})
	if !taken {
		return errors.New("ended while waiting for a turn")
	}
	return nil
}

// End waits until the Node is ready, with the container runtime that its kubelet sees, and releases what it holds.
func (t *Turn) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	why, ended := t.until(ctx, func() (bool, string, error) {
		self, err := t.api.self(ctx)
		if err != nil {
			return false, "", err
		}
		for _, condition := range self.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return false, "waiting until the Node is ready: " + condition.Reason + ": " + condition.Message, nil
			}
		}
		return t.change(ctx, func(lease *coordinationv1.Lease) bool {
			lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.OwnerReferences = nil, nil, nil
			delete(lease.Annotations, AnnotationFailure)
			return true
		})
	})
	if !ended {
		return errors.New(why)
	}
	return nil
}

// Fail tells the Lease that the node holds why it has failed. It keeps it.
func (t *Turn) Fail(ctx context.Context, cause error) {
	ctx, cancel := context.WithTimeout(ctx, failTime)
	defer cancel()
	text := finding.Line(cause.Error(), maxReason)
	_, _ = t.until(ctx, func() (bool, string, error) {
		return t.change(ctx, func(lease *coordinationv1.Lease) bool {
			if lease.Annotations[AnnotationFailure] == text {
				return false
			}
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationFailure, text)
			return true
		})
	})
}

// until tries until it is done or ctx ends, longer and longer after errors, and returns why it is not done. Each new
// reason is written to the log.
func (t *Turn) until(ctx context.Context, try func() (done bool, why string, err error)) (why string, done bool) {
	said := ""
	for pause := t.pause; ; {
		done, waits, err := try()
		if done {
			return "", true
		}
		switch {
		case ctx.Err() != nil: // the error may only say that
		case err != nil:
			why = "asking the API server for a turn: " + err.Error()
			pause = min(2*pause, maxTurnPause) //nolint:mnd // longer each time
		default:
			why, pause = waits, t.pause
		}
		if why = finding.Line(why, maxReason); why != said && why != "" {
			_, _ = fmt.Fprintf(t.log, "%s: %s\n", contract.Name, why)
			said = why
		}
		select {
		case <-ctx.Done():
			return why, false
		case <-time.After(pause + rand.N(pause)/2): //nolint:gosec,mnd // nodes that begin together ask one after the other
		}
	}
}

// held returns the Leases that the node holds.
func (t *Turn) held(ctx context.Context) ([]*coordinationv1.Lease, error) {
	var found []*coordinationv1.Lease
	for slot := range t.slots {
		lease, err := t.api.lease(ctx, slot)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && holderOf(lease) == t.node {
			found = append(found, lease)
		}
	}
	return found, nil
}

// change changes the Leases that the node holds. It is not done if one has changed meanwhile.
func (t *Turn) change(ctx context.Context, edit func(*coordinationv1.Lease) bool) (done bool, why string, err error) {
	held, err := t.held(ctx)
	if err != nil {
		return false, "", err
	}
	for _, lease := range held {
		if !edit(lease) {
			continue
		}
		if err := t.api.update(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
			return false, "", err
		}
	}
	return true, "", nil
}

// claim makes a Lease that of the node, unless somebody was faster.
func (t *Turn) claim(ctx context.Context, lease *coordinationv1.Lease, self *corev1.Node) (bool, error) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: self.Name, UID: self.UID}
	if holderOf(lease) == t.node && slices.Contains(lease.OwnerReferences, owner) {
		return true, nil
	}
	now := metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &t.node, &now
	lease.OwnerReferences = []metav1.OwnerReference{owner} // with an earlier Node of this name it would go
	err := t.api.update(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
