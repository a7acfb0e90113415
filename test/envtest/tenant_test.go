package envtest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// tripwire listens on loopback and counts who connects.
func tripwire(t *testing.T) (address *net.TCPAddr, connections *atomic.Int64) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	connections = &atomic.Int64{}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = connection.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr), connections
}

// TestTenant_ProbesNoNetwork has a namespace user name an address wherever one can be named.
func TestTenant_ProbesNoNetwork(t *testing.T) {
	ns := namespace(t)
	address, connections := tripwire(t)
	target := address.String()
	proxySecret(t, ns, "one-http-proxy", map[string]string{
		"httpProxy": "http://" + target, "httpsProxy": "https://" + target, "username": "a", "password": "b",
		"noProxy": "127.0.0.1,localhost,metadata.internal," + target,
	})
	c := newCluster(t, ns, "one", with(annotated(contract.AnnotationNoProxyGroups, "-loopback")),
		with(func(cluster *clusterv1.Cluster) {
			cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: int32(address.Port)} //nolint:gosec // a port
			cluster.Spec.ClusterNetwork.APIServerPort = int32(address.Port)                                         //nolint:gosec // a port
		}))
	c.eventuallyReports(contract.ReasonConfigured)
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Spec.ControlPlaneRef.Kind = "Foreign"
		cluster.Spec.InfrastructureRef.APIGroup = "127.0.0.1"
		cluster.Annotations[contract.AnnotationRollout] = contract.RolloutImmediate
	})
	staysQuiet(t, ns)
	if n := connections.Load(); n > 0 {
		t.Errorf("the manager connected to %s, which a user named, %d times", target, n)
	}
}

// TestTenant_ReachesNoOtherNamespace has a namespace user name objects of another namespace wherever a name can be
// written, and looks at the requests of the manager, which all are about the namespace of the Cluster.
func TestTenant_ReachesNoOtherNamespace(t *testing.T) {
	ns := namespace(t)
	victim := vocabulary.Namespace(t, shared.client, "victim-")
	proxySecret(t, victim, "http-proxy", map[string]string{"httpProxy": "http://s3cr.example.com:1"})
	proxySecret(t, ns, "http-proxy", map[string]string{"httpProxy": proxyURL})
	before := len(shared.requests.in(victim))
	for i, name := range []string{
		victim + "/http-proxy", "../" + victim + "/http-proxy", "../../namespaces/" + victim + "/secrets/http-proxy",
		"..%2f" + victim + "%2fhttp-proxy", "http-proxy?namespace=" + victim, victim + ".http-proxy",
	} {
		cluster := fmt.Sprintf("c%d", i)
		c := newCluster(t, ns, cluster, with(annotated(contract.AnnotationSecret, name)),
			func(object client.Object) {
				if pool, is := object.(*clusterv1.MachineDeployment); is {
					pool.Annotations = map[string]string{contract.AnnotationSecret: name}
				}
			})
		eventually(t, "a refusal", func() string {
			if condition := c.condition(); !slices.Contains(
				[]string{contract.ReasonInvalidSettings, contract.ReasonSettingsNotFound}, condition.Reason) {
				return fmt.Sprintf("%s: %+v", name, condition)
			}
			return ""
		})
		text := c.snapshot() + c.condition().Message
		for _, secret := range []map[string][]byte{c.generated(), c.secret(cluster + "." + cluster + "-md.md.proxy-files")} {
			text += string(secret[contract.KeyProxyEnv])
		}
		if strings.Contains(text, "s3cr") {
			t.Errorf("%s: a value of another namespace", name)
		}
	}
	if asked := shared.requests.in(victim)[before:]; len(asked) > 0 {
		t.Errorf("the manager asked %q", asked)
	}
}
