//go:build node

// Package kubernetes_test makes a real Kubernetes cluster of machines that reach nothing but a proxy: real kubeadm,
// kubelet and containerd, started by the bootstrap data that the controllers of a management cluster have made for a
// Cluster with the label. What went through the proxy is read from squid's own log.
package kubernetes_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/rootfs"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

const (
	// needle, poolNeedle and nextNeedle are in the user and password of one Secret each, and nowhere else.
	needle     = "Kx9Rude"
	poolNeedle = "Wq4Pool"
	nextNeedle = "Zt7Next"
	// username and password hold every character that some reader on the way treats in its own way.
	username = "us%er" + needle
	password = " p%40@\"'$\\&#{{x}}{%`$(id)%C3:/?;!~*[" + needle + "]é\\n%% "
	// encodedUserinfo is the same, percent-encoded by hand.
	encodedUserinfo = "us%25er" + needle +
		":%20p%2540%40%22%27%24%5C%26%23%7B%7Bx%7D%7D%7B%25%60%24%28id%29%25C3%3A%2F%3F%3B%21~%2A%5B" +
		needle + "%5D%C3%A9%5Cn%25%25%20"
	poolUsername = "pool"
	poolPassword = poolNeedle + `"'@:/\`
	poolUserinfo = "pool:" + poolNeedle + "%22%27%40%3A%2F%5C"
	// The pool's next proxy has the same user.
	nextPassword = nextNeedle + " %@"
	nextUserinfo = "pool:" + nextNeedle + "%20%25%40"

	mainURL = "http://10.77.0.1:3128"
	poolURL = "http://10.77.0.1:3129"
	nextURL = "http://10.77.0.1:3131"
	openURL = "http://10.77.0.1:3132" // the one without credentials

	// clusterNoProxy is what every node of the Cluster gets, poolNoProxy the same for a Secret without noProxy.
	poolNoProxy = "localhost,127.0.0.1,10.244.0.0/16,10.96.0.0/16,10.96.0.1,10.96.0.10,kubernetes,kubernetes.default,.svc," +
		".cluster.local,.cluster.local.,10.77.0.10,169.254.169.254,169.254.0.0/16"
	clusterNoProxy = poolNoProxy + ",corp.example.com,.corp.example.com,192.0.2.0/24,.intern.example.org"
)

// suite is what all tests share.
type suite struct {
	image
	lab        *lab.Lab
	management *management
	report     *report.Report
	authority  *pki.Authority // of the registry
}

// secrets are the proxy Secrets of the Cluster and of its pool, which trust the registry.
func (s *suite) secrets() map[string]map[string]string {
	return map[string]map[string]string{
		"http-proxy": {
			contract.KeyHTTPProxy: mainURL, contract.KeyUsername: username, contract.KeyPassword: password,
			contract.KeyNoProxy:   "corp.example.com, 192.0.2.0/24, .intern.example.org, 169.254.169.254",
			contract.KeyTrustedCA: string(s.authority.PEM),
		},
		poolSecret: {
			contract.KeyHTTPProxy: poolURL, contract.KeyUsername: poolUsername, contract.KeyPassword: poolPassword,
			contract.KeyTrustedCA: string(s.authority.PEM),
		},
	}
}

func TestKubernetes(t *testing.T) {
	s := &suite{report: report.New(t, "Kubernetes, all together",
		"Kubernetes ran on cgroups of version 1 and on containerd 1.6 of Debian 12; CoreDNS is left out.")}
	programs := t.TempDir()
	if !t.Run("what the cluster is made of", func(t *testing.T) {
		s.report.Step(t, "Kubernetes, squid, root file system, registry")
		machine.Require(t)
		machine.RequireContainers(t)
		s.image = image{
			root: rootfs.Dir(t), squid: rootfs.Squid(t), programs: rootfs.Kubernetes(t),
			registry: rootfs.Build(t, "registry", programs), probe: rootfs.Build(t, "probe", programs),
			capi: rootfs.Build(t, "capi", programs), product: rootfs.Product(t, programs),
		}
	}) || s.capi == "" {
		return
	}
	s.authority = pki.Make(t, "registry CA")
	s.lab = lab.Start(t, lab.Config{
		Squid: s.squid, Registry: s.registry, Authority: s.authority,
		Names: []string{registryHost, mirrorHost}, Images: images(t, s.image),
	})
	s.lab.StartProxy(t, lab.Proxy{Name: "main", Port: 3128, Username: username, Password: password})
	s.lab.StartProxy(t, lab.Proxy{Name: "pool", Port: 3129, Username: poolUsername, Password: poolPassword})
	s.management = newManagement(t, s.image, s.lab)
	if !t.Run("a management cluster starts", func(t *testing.T) {
		s.report.Step(t, stepManagement)
		s.management.start(t)
	}) {
		return
	}
	// Each applies its Clusters shortly before their nodes boot: while an endpoint does not answer, Cluster API tries again
	// less and less often, up to every 17 minutes.
	t.Run("cluster", s.cluster)
	t.Run("a proxy without credentials", s.plain)
	t.Run("static Pods", s.static)
	t.Run("in place", s.inPlace)
	t.Run("pulls", s.pulls)
	t.Run("nothing is left on the host", func(t *testing.T) {
		remains, err := machine.Remains()
		if err != nil || len(remains) > 0 {
			t.Errorf("left: %s, %v", remains, err)
		}
	})
}
