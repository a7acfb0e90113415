package check

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// fakeProbe is a command of a program that asks from a node.
type fakeProbe struct{}

func (fakeProbe) Probe() []string { return []string{"node", "probe"} }

// managementCluster has Cluster team/prod with a kubeconfig.
func managementCluster(t *testing.T, kubeconfig string) client.WithWatch {
	t.Helper()
	scheme, err := world.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod"}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod-kubeconfig"},
			Data:       map[string][]byte{"value": []byte(kubeconfig)},
		}).Build()
}

// kubeconfigOf is one with more fields of its cluster and its user.
func kubeconfigOf(server, cluster, user string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, %s}}]\nusers: [{name: u, user: {%s}}]\n", server, cluster, user)
}

func authority(server *httptest.Server) string {
	return "certificate-authority-data: " + base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func options() checkOptions {
	return checkOptions{namespace: "team", cluster: "prod", fromNodes: AllNodes, nodeImage: "r.example.com/p:1", probe: fakeProbe{}}
}

// TestFromNodes_RefusesWhatAKubeconfigWouldDoHere has the writer of a kubeconfig try to use the machine of a user.
func TestFromNodes_RefusesWhatAKubeconfigWouldDoHere(t *testing.T) {
	t.Parallel()
	const ca = "certificate-authority-data: YQ=="
	for name, test := range map[string]struct{ cluster, user, want string }{
		"a program":       {ca, "exec: {apiVersion: client.authentication.k8s.io/v1, command: hunter2, interactiveMode: Never}", "field exec would run a program"},
		"a plugin":        {ca, "auth-provider: {name: oidc}", "field auth-provider would run a plugin"},
		"a token file":    {ca, "tokenFile: /home/hunter2/token", "field tokenFile would read a file"},
		"a key file":      {ca, "client-key: /home/hunter2/.ssh/id", "field client-key would read a file"},
		"an authority":    {"certificate-authority: /home/hunter2/ca", "token: x", "field certificate-authority would read a file"},
		"a proxy":         {ca + ", proxy-url: 'http://hunter2@evil.example.com'", "token: x", "field proxy-url would send requests to a proxy"},
		"no verification": {"insecure-skip-tls-verify: true", "token: x", "field insecure-skip-tls-verify is refused"},
	} {
		_, err := options().workload(t.Context(), managementCluster(t, kubeconfigOf("https://evil.example.com", test.cluster, test.user)))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}

// TestFromNodes_SurvivesAHostileAPIServer has a workload cluster answer with more than anybody can hold, or never, or
// send the user elsewhere.
func TestFromNodes_SurvivesAHostileAPIServer(t *testing.T) {
	t.Parallel()
	var strange atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strange.Add(1) }))
	t.Cleanup(stranger.Close)
	var written atomic.Int64
	const gigabyte = 1 << 30
	asJSON := func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }
	fill := func(w io.Writer, size int64) {
		_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"continue":"`)
		chunk := []byte(strings.Repeat("a", 1<<20))
		for sent := int64(0); sent < size; {
			n, err := w.Write(chunk)
			if sent += int64(n); err != nil {
				return
			}
			written.Add(int64(n))
		}
		_, _ = io.WriteString(w, `"},"items":[]}`)
	}
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		want   string
		groups int
	}{
		"a gigabyte": {func(w http.ResponseWriter, _ *http.Request) { asJSON(w); fill(w, gigabyte) }, "", 1}, // written counts it
		"gzip of a gigabyte": {func(w http.ResponseWriter, _ *http.Request) {
			asJSON(w)
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			_, _ = packed.Write(make([]byte, 64<<20))
			_ = packed.Close()
		}, "", 1},
		"nothing, ever": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", 1},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
		}, "", 1},
		"too many nodes": {func(w http.ResponseWriter, r *http.Request) {
			asJSON(w)
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/nodes") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			node := `{"metadata":{"name":"` + strings.Repeat("n", 1000) + `"}}`
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":[`+strings.Repeat(node+",", 10*maxNodes)+node+`]}`)
		}, "", maxNodes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(test.handle)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			management := managementCluster(t, kubeconfigOf(server.URL, authority(server), "token: x"))
			nodes, err := options().workload(t.Context(), management)
			if err != nil {
				t.Fatal(err)
			}
			groups := newChecker(Options{Client: management, FromNodes: nodes}).fromNodes(t.Context())
			if len(groups) != test.groups {
				t.Fatalf("%d groups", len(groups))
			}
			for _, group := range groups {
				result := group.Checks[0]
				if result.Status == OK || len(group.Name) > 300 || len(result.Message) > 4*maxMessage ||
					!strings.Contains(result.Message, test.want) {
					t.Errorf("%.300s: %.2000v", group.Name, result)
				}
			}
			if strange.Load() > 0 {
				t.Error("a stranger was asked")
			}
		})
	}
	t.Cleanup(func() {
		if sent := written.Load(); sent > gigabyte/8 {
			t.Errorf("%d bytes were read", sent)
		}
	})
}
