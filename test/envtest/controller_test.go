package envtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// rude is a password with every character that a unit, a shell, YAML or a template could take for its own.
const rude = `p%4@:/"'$` + "`" + `\ {{x}}{%#&é`

func TestCluster_IsConfiguredChangedAndRestored(t *testing.T) {
	ns := namespace(t)
	c := classic{t: t, ns: ns, name: "one"}
	create(t, c.objects()[1:]...)
	before := c.snapshot()
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{
		"httpProxy": proxyURL, "username": "user",
		"password": rude,
	})
	create(t, c.objects()[0])

	c.eventuallyReports(contract.ReasonConfigured, "3 of 3 pools and control planes have the proxy (Secret "+ns+"/one-http-proxy)")
	c.wantPatched(t, everyObject...)
	c.eventuallyHas(
		`NO_PROXY="localhost,127.0.0.1,10.244.0.0/16,10.96.0.0/12,10.96.0.1,10.96.0.10,kubernetes,kubernetes.default,.svc,.cluster.local,.cluster.local.,one.example.com,169.254.169.254,169.254.0.0/16,installation.example.com,.installation.example.com"`)
	c.eventuallyHas(
		`http_proxy="http://user:p%254%40%3A%2F%22%27%24%60%5C%20%7B%7Bx%7D%7D%7B%25%23%26%C3%A9@proxy.example.com:3128"`)

	controlPlane := c.controlPlane()
	var paths []string
	for _, f := range controlPlane.Spec.KubeadmConfigSpec.Files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{
		"/etc/motd", "/etc/capi-proxy-patcher/proxy.env", "/etc/systemd/system/containerd.service.d/http-proxy.conf",
		"/etc/systemd/system/kubelet.service.d/http-proxy.conf", "/etc/capi-proxy-patcher/trusted-ca.pem", "/etc/capi-proxy-patcher/setup.sh",
	}, paths); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if controlPlane.Annotations[contract.AnnotationOutputVersion] != "1" {
		t.Errorf("annotations %v lack the output version", controlPlane.Annotations)
	}

	// Another Secret reaches the generated Secret and no spec.
	generations := c.generations()
	change(t, secret, func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://other.example.com:8080") })
	c.eventuallyHas(
		`HTTPS_PROXY="http://user:p%254%40%3A%2F%22%27%24%60%5C%20%7B%7Bx%7D%7D%7B%25%23%26%C3%A9@other.example.com:8080"`)
	if diff := cmp.Diff(generations, c.generations()); diff != "" {
		t.Errorf("a new Secret changed specs (-want +got):\n%s", diff)
	}
	staysQuiet(t, ns)

	// Nothing of the password but in Secrets.
	text := c.snapshot() + c.condition().Message + shared.logs.String()
	for _, leak := range []string{rude, "p%254", "p%4@"} {
		if strings.Contains(text, leak) {
			t.Errorf("%q is in a spec, the condition or the log", leak)
		}
	}

	c.edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	c.eventuallyAsBefore(t, before)
	staysQuiet(t, ns)
}

func TestInstallationWideSecret_ServesNamespacesThatAreSelected(t *testing.T) {
	ns := namespace(t)
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonSettingsNotFound, "or ask an operator to let Namespace "+ns+
		" use the installation-wide Secret")
	if secret := c.generated(); secret != nil {
		t.Errorf("there is a generated Secret with %d keys", len(secret))
	}
	mayUseDefault(t, ns, true)
	c.eventuallyReports(contract.ReasonConfigured, defaultSecretNamespace+"/"+defaultSecretName)
	c.eventuallyHas(`HTTP_PROXY="http://installation.example.com:3128"`)
	mayUseDefault(t, ns, false)
	c.eventuallyReports(contract.ReasonSettingsNotFound)
}

func TestSecret_MayAppearLater(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"with the label":                      {contract.LabelProxySecret: ""},
		"without it, noticed at a later sync": nil,
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			c := newCluster(t, ns, "one", func(o client.Object) {
				if cluster, ok := o.(*clusterv1.Cluster); ok {
					cluster.Annotations = map[string]string{contract.AnnotationSecret: "late"}
				}
			})
			c.eventuallyReports(contract.ReasonSettingsNotFound, "Secret "+ns+
				"/late does not exist; create it or change annotation capi-proxy-patcher.io/secret")
			c.eventuallyPatched()
			if c.generated() != nil {
				t.Error("there is a generated Secret; bootstrap is to wait for it")
			}
			create(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late", Labels: labels},
				StringData: map[string]string{"httpProxy": proxyURL},
			})
			if labels == nil {
				c.eventuallyReports(contract.ReasonConfigured,
					"has no label capi-proxy-patcher.io/proxy, so changes take up to 10 minutes (--sync-period) to take effect; label it: kubectl label secret late capi-proxy-patcher.io/proxy= -n "+ns)
			} else {
				c.eventuallyReports(contract.ReasonConfigured)
			}
			c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
		})
	}
}

// windowsPool makes the machine template ask for Windows like those of real providers, and changes nothing else.
func windowsPool(o client.Object) {
	if template, ok := o.(*unstructured.Unstructured); ok {
		template.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
			"osDisk": map[string]any{"diskSizeGB": int64(64), "osType": "Windows"},
		}}}
	}
}

func TestWindows_IsFoundInTheMachineTemplate(t *testing.T) {
	t.Parallel()
	for name, webhooks := range map[string]bool{"by the controller": false, "by the webhook": true} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			if webhooks {
				admitted(t, ns, webhooksLive)
			}
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := classic{t: t, ns: ns, name: "one"}
			objects := c.objects()
			slices.SortStableFunc(objects, func(a, b client.Object) int { // bootstrap objects last, so that all is known
				return strings.Compare(bootstrapLast(a), bootstrapLast(b))
			})
			for _, o := range objects {
				windowsPool(o)
				create(t, o)
			}
			c.eventuallyReports(contract.ReasonConfigured,
				"KubeadmConfigTemplate "+ns+"/one-md is for Windows nodes (spec.template.spec.osDisk.osType of DemoMachineTemplate "+ns+"/one) and is not patched",
				"KubeadmConfig "+ns+"/one-mp is for Windows nodes")
			c.wantPatched(t, "control plane")
			if got := c.generations(); got["template"] != 1 || got["KubeadmConfig"] != 1 {
				t.Errorf("a Windows pool was written: generations %v", got)
			}
			staysQuiet(t, ns)
		})
	}
}

func bootstrapLast(o client.Object) string {
	switch o.(type) {
	case *bootstrapv1.KubeadmConfigTemplate, *bootstrapv1.KubeadmConfig:
		return "b"
	}
	return "a"
}

func TestPool_WaitsForItsMachineTemplate(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	objects := c.objects()
	template := objects[2]
	create(t, slices.Delete(objects, 2, 3)...)
	c.eventuallyReports(contract.ReasonWaitingForObjects, "DemoMachineTemplate "+ns+
		"/one of MachineDeployment one-md does not exist yet; it shows whether nodes run Windows")
	c.wantPatched(t, "control plane")
	asked := func() int {
		return len(slices.DeleteFunc(shared.requests.in(ns),
			func(r string) bool { return !strings.HasSuffix(r, "/demomachinetemplates/one") }))
	}
	before := asked()
	if before == 0 {
		t.Error("nobody has asked for the template, so this shows nothing")
	}
	for i := range 30 { // each enqueues the Cluster
		change(t, c.cluster(), func(cluster *clusterv1.Cluster) {
			metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "example.com/touched", strconv.Itoa(i))
		})
	}
	if got := asked() - before; got > 10 {
		t.Errorf("the API server was asked %d times for a template that does not exist", got)
	}
	create(t, template)
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, everyObject...)
}
