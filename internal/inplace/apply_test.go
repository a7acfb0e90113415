package workload

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// hostile is an API server of somebody who wants to harm the manager.
func hostile(t *testing.T, handle http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: hunter2}}]\n",
		server.URL, base64.StdEncoding.EncodeToString(authority))
}

// emptyLists is an API server that has nothing.
func emptyLists(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`)
}

// applying is an Applier whose Clusters have the kubeconfigs of a map, by the names of the Clusters.
func applying(t *testing.T, kubeconfigs map[string]client.Reader) func(name string) controller.Outcome {
	t.Helper()
	applier := NewApplier(func(ctx context.Context, key client.ObjectKey) (client.Client, func(), error) {
		connect, err := Connect(kubeconfigs[key.Name])
		if err != nil {
			return nil, nil, err
		}
		return connect(ctx, key)
	})
	guarded := backoff.New(nil, nil, time.Now) //nolint:forbidigo // nothing is written
	return func(name string) controller.Outcome {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
		out, _, err := applier.Apply(t.Context(), cluster, guarded, []publish.Secret{publish.KeptNodes()})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// wantAway fails unless the workload cluster is reported not to answer, without a word of it.
func wantAway(t *testing.T, out controller.Outcome) {
	t.Helper()
	if len(out.Findings) != 1 || out.Findings[0].Reason != contract.ReasonDelivering ||
		!strings.HasPrefix(out.Findings[0].Message, "the workload cluster does not answer") ||
		!strings.HasSuffix(out.Findings[0].Message, "-kubeconfig; the log of the manager has the details") {
		t.Errorf("got %v", out.Findings)
	}
}

// TestApplier_ReadsNoMoreThanAnAnswerMayHave has a server send without end, and compress what it was not asked to. A slow
// machine may stop at the time that a request has, before the bound.
func TestApplier_ReadsNoMoreThanAnAnswerMayHave(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 1024 {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
	var bomb bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	for range 64 {
		_, _ = zip.Write(chunk)
	}
	_ = zip.Close()
	var accepts atomic.Value
	compressed := func(w http.ResponseWriter, r *http.Request) {
		accepts.Store(r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}
	var paged atomic.Int64
	pages := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 4 {
			n, _ := w.Write(chunk)
			paged.Add(int64(n))
		}
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"a"},"items":[]}`)
	}
	apply := applying(t, map[string]client.Reader{
		"endless": secrets{value: hostile(t, endless)}, "compressed": secrets{value: hostile(t, compressed)},
		"pages": secrets{value: hostile(t, pages)},
	})
	wantAway(t, apply("pages"))
	if got := paged.Load(); got > maxAnswers+maxAnswer {
		t.Errorf("the manager has read about %d bytes of pages", got)
	}
	wantAway(t, apply("endless"))
	if got := sent.Load(); got > 2*maxAnswer {
		t.Errorf("the manager has read about %d bytes", got)
	}
	wantAway(t, apply("compressed"))
	if got := accepts.Load(); got != "" {
		t.Errorf("the manager accepts %v", got)
	}
}

// transport answers with as many zeros as it says.
type transport int64

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(io.LimitReader(zeros{}, int64(t)))}, nil
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(into []byte) (int, error) { return len(into), nil }

func TestLimited_ReadsOneAnswerAndAllUpToTheirBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answers []transport
		want    error // of the last one
	}{
		{name: "an answer as large as one may be", answers: []transport{maxAnswer}},
		{name: "one byte more", answers: []transport{maxAnswer + 1}, want: errTooLarge},
		{name: "all together as large as they may be", answers: []transport{maxAnswer, maxAnswers - maxAnswer}},
		{name: "together one byte more", answers: []transport{maxAnswer, 1, maxAnswers - maxAnswer}, want: errTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			left := maxAnswers
			var got error
			for _, answer := range test.answers {
				response, err := limited{answer, &left}.RoundTrip(nil)
				if err != nil || got != nil {
					t.Fatalf("got %v before the last answer", errors.Join(err, got))
				}
				_, got = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			if !errors.Is(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestApplier_FollowsNoRedirect has a server redirect each request to one without TLS.
func TestApplier_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(stranger.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int32
		apply := applying(t, map[string]client.Reader{"c": secrets{value: hostile(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, stranger.URL+"/latest/meta-data", status)
		})}})
		wantAway(t, apply("c"))
		if asked.Load() == 0 || requests.Load() > 0 {
			t.Errorf("%d: %d requests at the server, %d at the stranger", status, asked.Load(), requests.Load())
		}
	}
}

// TestApplier_SlowClustersWaitForEachOther has API servers that never answer beside one that does.
func TestApplier_SlowClustersWaitForEachOther(t *testing.T) {
	t.Parallel()
	hang := make(chan bool, 16)
	slow := secrets{value: hostile(t, func(_ http.ResponseWriter, r *http.Request) {
		hang <- true
		<-r.Context().Done()
	})}
	apply := applying(t, map[string]client.Reader{
		"a": slow, "b": slow, "good": secrets{value: hostile(t, emptyLists)},
	})
	begun := time.Now() //nolint:forbidigo // it is about time
	both := make(chan controller.Outcome, 2)
	for _, name := range []string{"a", "b"} {
		go func() { both <- apply(name) }()
	}
	for range cap(both) {
		<-hang // both are asked at once, the first time
		wantAway(t, <-both)
	}
	if took := time.Since(begun); took > 2*passTime {
		t.Errorf("a pass takes %s", took)
	}
	go func() { both <- apply("a") }()
	<-hang
	if out := apply("b"); out.RequeueAfter != turnDelay {
		t.Errorf("the second of two slow clusters is asked at once: %+v", out)
	}
	if out := apply("good"); len(out.Findings) > 0 {
		t.Errorf("one that answers has %v", out.Findings)
	}
	wantAway(t, <-both)
}

// broken cannot be read.
type broken struct{ client.Reader }

func (broken) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("dial tcp: connection refused")
}

// TestApplier_TellsARefusedKubeconfigFromOneThatItCannotRead also reads again, so that neither is for ever.
func TestApplier_TellsARefusedKubeconfigFromOneThatItCannotRead(t *testing.T) {
	t.Parallel()
	all := map[string]client.Reader{"a": broken{}, "b": secrets{value: "password: hunter2\n\t{{"}}
	apply := applying(t, all)
	wantAway(t, apply("a"))
	out := apply("b")
	if len(out.Findings) != 1 || out.Findings[0].Reason != contract.ReasonDeliveryFailed ||
		out.Findings[0].Message != "reading kubeconfig of Secret team/b-kubeconfig: key value cannot be parsed" {
		t.Errorf("got %v", out.Findings)
	}
	for name := range all {
		all[name] = secrets{value: hostile(t, emptyLists)}
		if out := apply(name); len(out.Findings) > 0 {
			t.Errorf("%s: %v", name, out.Findings)
		}
	}
}

// TestDeletable_HasEveryKindOfTheOutputs makes every output for workload clusters. A kind that is not listed would stay
// there.
func TestDeletable_HasEveryKindOfTheOutputs(t *testing.T) {
	t.Parallel()
	list := make([]string, 0, 4)
	for _, output := range publish.KeptDelivered() {
		list = append(list, output.Delivered.String())
	}
	proxy, err := settings.ParseSecret(map[string][]byte{"httpProxy": []byte("http://p:1")})
	if err != nil {
		t.Fatal(err)
	}
	files, _, err := publish.OfNodes(publish.NodeFiles{
		Cluster: "prod", Secret: "s", Image: "i", PullPolicy: "Always", Data: map[string][]byte{contract.KeySetup: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	wanted := []publish.Secret{files}
	for _, list := range []string{strings.Join(list, ","), "pods=kyverno"} {
		asks, err := publish.ParseList(list)
		if err != nil {
			t.Fatal(err)
		}
		result, err := publish.Of(asks, publish.Input{Cluster: "prod", Settings: proxy, NoProxy: "a", Version: "v1.36.0"})
		if err != nil {
			t.Fatal(err)
		}
		wanted = append(wanted, result.Secrets...)
	}
	left := map[string]bool{}
	for _, kind := range deletable() {
		left[kind.String()] = true
	}
	for _, secret := range wanted {
		objects, err := secret.Objects()
		if err != nil || len(objects) == 0 {
			t.Fatalf("%s: %v, %v", secret.Delivered, objects, err)
		}
		for _, content := range objects {
			object := unstructured.Unstructured{Object: content}
			kind := object.GroupVersionKind()
			mapping, err := newMapper().RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil || !slices.Contains(deletable(), kind) {
				t.Errorf("%s: %s is not deleted: %v", secret.Delivered, kind, err)
				continue
			}
			if named := mapping.Scope.Name() == meta.RESTScopeNameNamespace; named != (object.GetNamespace() != "") {
				t.Errorf("%s: %s in namespace %q: %v", secret.Delivered, kind, object.GetNamespace(), mapping.Scope.Name())
			}
			delete(left, kind.String())
		}
	}
	if len(left) > 0 {
		t.Errorf("no output has %v", left)
	}
}
