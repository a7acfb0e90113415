package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secrets reads one Secret.
type secrets struct {
	client.Reader

	value string
}

func (s secrets) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*corev1.Secret).Data = map[string][]byte{"value": []byte(s.value)} //nolint:forcetypeassert // it is one
	return nil
}

// TestKubeconfigs_ReachOnlyTheirServer refuses what would send the manager's own files, such as its token, to the server
// that the kubeconfig names, and what decides where else the manager connects.
func TestKubeconfigs_ReachOnlyTheirServer(t *testing.T) {
	t.Parallel()
	text := func(cluster, user string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters:\n- name: c\n  cluster: {server: 'https://evil.example.com', %s}\n"+
			"users:\n- name: u\n  user: {%s}\n", cluster, user)
	}
	const ca = "certificate-authority-data: YQ=="
	for name, test := range map[string]struct{ text, want string }{
		"data":                 {text("certificate-authority-data: YQ==", "client-certificate-data: YQ==, client-key-data: YQ=="), ""},
		"a token":              {text(ca, "token: hunter2"), ""},
		"a password":           {text(ca, "username: admin, password: hunter2"), ""},
		"another name":         {text(ca+", tls-server-name: prod.internal", "token: hunter2"), ""},
		"impersonation":        {text(ca, "token: hunter2, as: eve, as-uid: '1', as-groups: ['system:masters'], as-user-extra: {a: [b]}"), ""},
		"a proxy":              {text(ca+", proxy-url: 'http://hunter2@169.254.169.254'", "token: hunter2"), "proxy-url"},
		"a SOCKS proxy":        {text(ca+", proxy-url: 'socks5://10.0.0.1:1080'", "token: hunter2"), "proxy-url"},
		"no verification":      {text("insecure-skip-tls-verify: true", "token: hunter2"), "insecure-skip-tls-verify"},
		"no authority":         {text("disable-compression: true", "token: hunter2"), "certificate-authority-data"},
		"a server without TLS": {strings.ReplaceAll(text(ca, "token: hunter2"), "https://", "http://"), "server"},
		"no server":            {strings.ReplaceAll(text(ca, "token: hunter2"), "https://evil.example.com", ""), "server"},
		"a host alone":         {strings.ReplaceAll(text(ca, "token: hunter2"), "https://", ""), "server"},
		"a second cluster": {strings.Replace(text(ca, "token: hunter2"), "users:",
			"- name: d\n  cluster: {server: 'https://d', certificate-authority-data: YQ==, proxy-url: 'http://d'}\nusers:", 1), "proxy-url"},
		"a CA file":    {text("certificate-authority: /etc/passwd", "token: hunter2"), "field certificate-authority would read a file"},
		"a token file": {text(ca, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), "tokenFile"},
		"a cert file":  {text(ca, "client-certificate: /tls.crt"), "client-certificate"},
		"a key file":   {text(ca, "client-key: /tls.key"), "client-key"},
		"a program":    {text(ca, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"), "field exec would run a program"},
		"a plugin":     {text(ca, "auth-provider: {name: oidc}"), "auth-provider"},
		"not YAML":     {"password: hunter2\n\t{{", "cannot be parsed"},
	} {
		_, err := RESTConfig(t.Context(), secrets{value: test.text}, client.ObjectKey{Namespace: "team", Name: "prod"})
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Secret team/prod-kubeconfig") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}

// TestKubeconfigs_RedirectSendsNothingToAStranger has an API server redirect to another one, which client-go follows: the
// stranger has no certificate of the kubeconfig's authority, and gets no request.
func TestKubeconfigs_RedirectSendsNothingToAStranger(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	stranger.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	defer stranger.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int32
		reader := secrets{value: hostile(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, stranger.URL+"/latest/meta-data", status)
		})}
		config, err := RESTConfig(t.Context(), reader, client.ObjectKey{})
		if err != nil {
			t.Fatal(err)
		}
		httpClient, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		response, err := httpClient.Get(config.Host + "/api") //nolint:noctx // it ends
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%d: the redirect was answered: %s", status, response.Status)
		}
		if asked.Load() == 0 || requests.Load() > 0 {
			t.Errorf("%d: %d requests at the server, %d at the stranger", status, asked.Load(), requests.Load())
		}
	}
}
