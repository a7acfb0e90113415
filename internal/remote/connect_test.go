package remote

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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// visiting lists ConfigMaps in workload clusters whose kubeconfigs are in a map, by the names of the Clusters.
func visiting(t *testing.T, kubeconfigs map[string]client.Reader) func(name string) error {
	t.Helper()
	clusters := NewClusters(func(ctx context.Context, key client.ObjectKey) (Connection, error) {
		return Connect(kubeconfigs[key.Name])(ctx, key)
	}, time.Now) //nolint:forbidigo // it is about time
	return func(name string) error {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
		connection, err := clusters.Open(t.Context(), cluster)
		if err != nil {
			return err
		}
		defer connection.Close()
		return clusters.Visit(t.Context(), cluster, func(ctx context.Context) error {
			_, err := Metadata(ctx, connection, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			return err
		})
	}
}

// wantAway fails unless the workload cluster is reported not to answer, without a word of it.
func wantAway(t *testing.T, err error) *AwayError {
	t.Helper()
	away, ok := errors.AsType[*AwayError](err)
	if !ok || !strings.HasPrefix(away.Error(), "the workload cluster does not answer") ||
		!strings.HasSuffix(away.Error(), "-kubeconfig; the log of the manager has the details") {
		t.Fatalf("got %v", err)
	}
	return away
}

// TestClusters_ReadsNoMoreThanAnAnswerMayHave has a server send without end, and compress what it was not asked to. A slow
// machine may stop at the time that a request has, before the bound.
func TestClusters_ReadsNoMoreThanAnAnswerMayHave(t *testing.T) {
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
	visit := visiting(t, map[string]client.Reader{
		"endless": secrets{value: hostile(t, endless)}, "compressed": secrets{value: hostile(t, compressed)},
		"pages": secrets{value: hostile(t, pages)},
	})
	_ = wantAway(t, visit("pages"))
	if got := paged.Load(); got > maxAnswers+maxAnswer {
		t.Errorf("the manager has read about %d bytes of pages", got)
	}
	_ = wantAway(t, visit("endless"))
	if got := sent.Load(); got > 2*maxAnswer {
		t.Errorf("the manager has read about %d bytes", got)
	}
	_ = wantAway(t, visit("compressed"))
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
			var left atomic.Int64
			left.Store(maxAnswers)
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

// TestClusters_FollowsNoRedirect has a server redirect each request to one without TLS.
func TestClusters_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(stranger.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int32
		visit := visiting(t, map[string]client.Reader{"c": secrets{value: hostile(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, stranger.URL+"/latest/meta-data", status)
		})}})
		_ = wantAway(t, visit("c"))
		if asked.Load() == 0 || requests.Load() > 0 {
			t.Errorf("%d: %d requests at the server, %d at the stranger", status, asked.Load(), requests.Load())
		}
	}
}

// TestClusters_SlowClustersWaitForEachOther has API servers that never answer beside one that does.
func TestClusters_SlowClustersWaitForEachOther(t *testing.T) {
	t.Parallel()
	hang := make(chan bool, 16)
	slow := secrets{value: hostile(t, func(_ http.ResponseWriter, r *http.Request) {
		hang <- true
		<-r.Context().Done()
	})}
	visit := visiting(t, map[string]client.Reader{
		"a": slow, "b": slow, "good": secrets{value: hostile(t, emptyLists)},
	})
	begun := time.Now() //nolint:forbidigo // it is about time
	both := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() { both <- visit(name) }()
	}
	for range cap(both) {
		<-hang // both are asked at once, the first time
		_ = wantAway(t, <-both)
	}
	if took := time.Since(begun); took > 2*passTime {
		t.Errorf("a pass takes %s", took)
	}
	go func() { both <- visit("a") }()
	<-hang
	if away := wantAway(t, visit("b")); away.RequeueAfter != turnDelay {
		t.Errorf("the second of two slow clusters is asked at once: %+v", away)
	}
	if err := visit("good"); err != nil {
		t.Errorf("one that answers has %v", err)
	}
	_ = wantAway(t, <-both)
}

// broken cannot be read.
type broken struct{ client.Reader }

func (broken) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("dial tcp: connection refused")
}

// TestClusters_TellsARefusedKubeconfigFromOneThatItCannotRead also reads again, so that neither is for ever.
func TestClusters_TellsARefusedKubeconfigFromOneThatItCannotRead(t *testing.T) {
	t.Parallel()
	all := map[string]client.Reader{"a": broken{}, "b": secrets{value: "password: hunter2\n\t{{"}}
	visit := visiting(t, all)
	_ = wantAway(t, visit("a"))
	err := visit("b")
	if refused, ok := errors.AsType[*RefusedError](err); !ok ||
		refused.Error() != "reading kubeconfig of Secret team/b-kubeconfig: key value cannot be parsed" {
		t.Errorf("got %v", err)
	}
	for name := range all {
		all[name] = secrets{value: hostile(t, emptyLists)}
		if err := visit(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClusters_ThatAnswerSlowlyAreSlow has a clock that passes while a workload cluster is asked.
func TestClusters_ThatAnswerSlowlyAreSlow(t *testing.T) {
	t.Parallel()
	now := noon
	clusters := NewClusters(nil, func() time.Time { return now })
	cluster := func(name string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	}
	taking := func(took time.Duration, meanwhile func()) func(context.Context) error {
		return func(context.Context) error {
			meanwhile()
			now = now.Add(took)
			return nil
		}
	}
	none := func() {}
	for _, name := range []string{"a", "b"} {
		if err := clusters.Visit(t.Context(), cluster(name), taking(slowTime+1, none)); err != nil {
			t.Fatal(err)
		}
	}
	err := clusters.Visit(t.Context(), cluster("a"), taking(0, func() {
		if away := wantAway(t, clusters.Visit(t.Context(), cluster("b"), taking(0, none))); !away.Failed {
			t.Errorf("got %+v", away)
		}
	}))
	if err != nil {
		t.Error(err)
	}
	err = clusters.Visit(t.Context(), cluster("b"), taking(0, func() {
		if err := clusters.Visit(t.Context(), cluster("a"), taking(0, none)); err != nil {
			t.Errorf("one that answers fast again waits: %v", err)
		}
	}))
	if err != nil {
		t.Error(err)
	}
}
