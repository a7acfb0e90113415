package envtest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
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

	c.eventuallyReports(contract.ReasonConfigured, "Bootstrap objects by proxy Secret: 3 use "+ns+"/one-http-proxy")
	c.wantPatched(t, everyObject...)
	c.eventuallyHas(
		`NO_PROXY="localhost,127.0.0.1,10.244.0.0/16,10.96.0.0/12,10.96.0.1,10.96.0.10,kubernetes,kubernetes.default,.svc,.cluster.local,.cluster.local.,one.example.com,installation.example.com,.installation.example.com"`)
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

func TestCluster_WorksBesideOthers(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": "http://one.example.com:3128"})
	proxySecret(t, ns, "http-proxy", map[string]string{"httpProxy": "http://shared.example.com:3128"})
	proxySecret(t, ns, "chosen", map[string]string{"httpsProxy": "http://chosen.example.com:3128"})
	one, two := newCluster(t, ns, "one"), newCluster(t, ns, "two")
	three := newCluster(t, ns, "three", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Annotations = map[string]string{contract.AnnotationSecret: "chosen"}
		}
	})
	unlabelled := newCluster(t, ns, "unlabelled", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Labels = nil
		}
	})
	before := unlabelled.snapshot()

	one.eventuallyReports(contract.ReasonConfigured)
	one.eventuallyHas(`HTTP_PROXY="http://one.example.com:3128"`)
	two.eventuallyReports(contract.ReasonConfigured)
	two.eventuallyHas(`HTTP_PROXY="http://shared.example.com:3128"`)
	three.eventuallyReports(contract.ReasonConfigured)
	three.eventuallyHas(`https_proxy="http://chosen.example.com:3128"`)
	if strings.Contains(string(three.generated()[contract.KeyProxyEnv]), "HTTP_PROXY") {
		t.Error("a Secret with only httpsProxy set HTTP_PROXY")
	}
	unlabelled.staysAsIs(before)
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
			c.wantPatched(t, everyObject...)
			if c.generated() != nil {
				t.Error("there is a generated Secret; bootstrap is to wait for it")
			}
			create(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late", Labels: labels},
				StringData: map[string]string{"httpProxy": proxyURL},
			})
			if labels == nil {
				c.eventuallyReports(contract.ReasonConfigured,
					"has no label capi-proxy-patcher.io/proxy, so changes take up to 10 minutes (--sync-period) to take effect; label it")
			} else {
				c.eventuallyReports(contract.ReasonConfigured)
			}
			c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
		})
	}
}

func TestSettings_BrokenAreReportedAndNoValueIsWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data        map[string]string
		annotations map[string]string
		want        string
	}{
		"a raw slash in the password": {
			data: map[string]string{"httpProxy": "http://user:s3cr/et@proxy:1"},
			want: "key httpProxy: unescaped /, ? or # in user or password",
		},
		"no proxy URL": {data: map[string]string{"noProxy": "a"}, want: "keys httpProxy and httpsProxy: no proxy URL"},
		"unknown key":  {data: map[string]string{"httpProxy": proxyURL, "no_proxy": "a"}, want: `key "no_proxy": unknown key (unknown-key); did you mean noProxy?`},
		"a bad entry":  {data: map[string]string{"httpProxy": proxyURL, "noProxy": "a,10.0.0.0/33"}, want: "noProxy entry 2"},
		"bad targets":  {annotations: map[string]string{contract.AnnotationTargets: "kubelet,docker"}, want: `entry 2, "docker", is not a target`},
		"bad groups":   {annotations: map[string]string{contract.AnnotationNoProxyGroups: "metadata"}, want: "annotation capi-proxy-patcher.io/no-proxy-groups: "},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			if test.data == nil {
				test.data = map[string]string{"httpProxy": proxyURL}
			}
			proxySecret(t, ns, "one-http-proxy", test.data)
			c := newCluster(t, ns, "one", func(o client.Object) {
				if cluster, ok := o.(*clusterv1.Cluster); ok {
					cluster.Annotations = test.annotations
				}
			})
			c.eventuallyReports(contract.ReasonInvalidSettings, test.want)
			if strings.Contains(c.condition().Message, "s3cr") {
				t.Errorf("the condition holds the password: %s", c.condition().Message)
			}
			if test.annotations == nil { // nodes wait for the generated Secret, so that none comes up without the proxy
				c.wantPatched(t, "control plane", "template", "KubeadmConfig")
			} else {
				c.wantPatched(t)
			}
			if c.generated() != nil {
				t.Error("a generated Secret was written")
			}
			staysQuiet(t, ns, "secrets")
		})
	}
}

func TestConflict_WithAFileOfTheUserLeavesTheObjectAlone(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if controlPlane, ok := o.(*controlplanev1.KubeadmControlPlane); ok {
			controlPlane.Spec.KubeadmConfigSpec.Files = append(controlPlane.Spec.KubeadmConfigSpec.Files,
				bootstrapv1.File{Path: "/etc/systemd/system/containerd.service.d/http-proxy.conf", Content: "[Service]"})
		}
	})
	c.eventuallyReports(contract.ReasonConflictingFile, "KubeadmControlPlane "+ns+
		"/one: files[1]: already writes /etc/systemd/system/containerd.service.d/http-proxy.conf")
	c.wantPatched(t, "template", "KubeadmConfig")
	staysQuiet(t, ns)

	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Spec.KubeadmConfigSpec.Files = o.Spec.KubeadmConfigSpec.Files[:1]
	})
	c.eventuallyReports(contract.ReasonConfigured)
}

func TestEndpoint_DelaysValuesWhileUnknown(t *testing.T) {
	t.Parallel()
	t.Run("Reference: specs are patched, the Secret waits, the endpoint changes no spec", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one", lateEndpoint)
		c.eventuallyReports(contract.ReasonWaitingForEndpoint, "spec.controlPlaneEndpoint of Cluster "+ns+
			"/one is not set yet")
		c.wantPatched(t, everyObject...)
		if c.generated() != nil {
			t.Error("the generated Secret exists without the endpoint")
		}
		before := c.snapshot()
		c.endpointComes()
		c.eventuallyReports(contract.ReasonConfigured)
		if !strings.Contains(string(c.generated()[contract.KeyProxyEnv]), ",192.0.2.1") {
			t.Error("the generated Secret lacks the endpoint")
		}
		if diff := cmp.Diff(before, c.snapshot()); diff != "" {
			t.Errorf("the endpoint changed specs:\n%s", diff)
		}
	})
}

func TestControlPlane_IsNotRolledWhileRunning(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	create(t, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one-abc", Labels: map[string]string{
			clusterv1.ClusterNameLabel: "one", clusterv1.MachineControlPlaneLabel: "",
		}},
		Spec: classic{ns: ns, name: "one"}.machine("KubeadmConfig", "one-abc"),
	})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonWaitingForRollout, "KubeadmControlPlane "+ns+
		"/one waits for its next rollout, because changing it now would replace its Machines")
	c.wantPatched(t, "template", "KubeadmConfig")
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
	})
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, everyObject...)

	// Removal follows the same policy, and keeps the Secret that the control plane still refers to.
	c.edit(func(cluster *clusterv1.Cluster) {
		delete(cluster.Annotations, contract.AnnotationRollout)
		delete(cluster.Labels, contract.LabelEnabled)
	})
	c.eventuallyReports(contract.ReasonRemovalWaiting,
		"keeps the proxy until its next rollout, because changing it now would replace its Machines; to roll it now set annotation "+
			"capi-proxy-patcher.io/rollout=Immediate on the Cluster")
	c.wantPatched(t, "control plane")
	if c.generated() == nil {
		t.Error("the generated Secret went while the control plane refers to it")
	}
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
	})
	c.eventuallyReports(noCondition)
	if c.generated() != nil {
		t.Error("the generated Secret is still there")
	}
}

func TestPause_LeavesObjectsAlone(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		switch object := o.(type) {
		case *clusterv1.Cluster:
			object.Spec.Paused = new(true)
		case *controlplanev1.KubeadmControlPlane:
			object.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}
	})
	before := c.snapshot()
	c.staysAsIs(before)
	staysQuiet(t, ns)
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = nil })
	c.eventuallyReports(contract.ReasonPaused, "KubeadmControlPlane "+ns+"/one is paused and is not patched; remove annotation cluster.x-k8s.io/paused to continue")
	c.wantPatched(t, "template", "KubeadmConfig")
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Annotations = nil })
	c.eventuallyReports(contract.ReasonConfigured)

	// A paused object still refers to the generated Secret, which still follows its sources.
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	change(t, fetch(t, ns, "one-http-proxy", &corev1.Secret{}),
		func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://other.example.com:1") })
	c.eventuallyHas(`HTTP_PROXY="http://other.example.com:1"`)
}

func TestPools_HaveTheirOwnProxies(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "dmz", map[string]string{"httpProxy": "http://dmz.example.com:3128"})
	c := newCluster(t, ns, "one", func(o client.Object) {
		switch o.(type) {
		case *clusterv1.MachineDeployment:
			o.SetAnnotations(map[string]string{contract.AnnotationSecret: "dmz"})
		case *clusterv1.MachinePool:
			o.SetAnnotations(map[string]string{contract.AnnotationSecret: contract.SecretNone})
		}
	})
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, "control plane", "template")
	if env := string(c.secret("one.one-md.md.proxy-files")[contract.KeyProxyEnv]); !strings.Contains(env,
		`HTTP_PROXY="http://dmz.example.com:3128"`) {
		t.Errorf("the pool's generated Secret holds %q", env)
	}
	if got := c.template().Spec.Template.Spec.Files[0].ContentFrom.Secret.Name; got != "one.one-md.md.proxy-files" {
		t.Errorf("the pool's template refers to Secret %s", got)
	}

	deployment := fetch(t, ns, "one-md", &clusterv1.MachineDeployment{})
	change(t, deployment, func(o *clusterv1.MachineDeployment) { o.Annotations = nil })
	eventually(t, "template of the pool", func() string {
		if got := c.template().Spec.Template.Spec.Files[0].ContentFrom.Secret.Name; got != "one-proxy-files" {
			return "it refers to Secret " + got
		}
		if c.secret("one.one-md.md.proxy-files") != nil {
			return "the pool's generated Secret is still there"
		}
		return ""
	})
}

func TestCondition_NamesWhatCannotBePatched(t *testing.T) {
	t.Parallel()
	t.Run("a bootstrap object of another provider", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one", func(o client.Object) {
			if pool, ok := o.(*clusterv1.MachineDeployment); ok {
				pool.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = "RKE2ConfigTemplate"
			}
		})
		c.eventuallyReports(contract.ReasonTemplateNotSupported,
			"MachineDeployment one-md uses RKE2ConfigTemplate one-md, which cannot be patched")
		c.wantPatched(t, "control plane", "KubeadmConfig")
	})
	t.Run("a control plane of another provider, as long as it has Machines", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one",
			with(func(cluster *clusterv1.Cluster) { cluster.Spec.ControlPlaneRef.Kind = "ToyControlPlane" }))
		hosted := "ToyControlPlane " + ns + "/one has no Machines and is not patched"
		c.eventuallyReports(contract.ReasonConfigured, hosted)
		c.wantPatched(t, "template", "KubeadmConfig")

		c.joined("one-cp-1", bootstrapv1.KubeadmConfigSpec{}, controlPlaneNode())
		c.eventuallyReports(contract.ReasonTemplateNotSupported, "ToyControlPlane "+ns+
			"/one is not a KubeadmControlPlane and its Machines are not patched")
		c.wantPatched(t, "template", "KubeadmConfig")
		c.gone("one-cp-1")
		c.eventuallyReports(contract.ReasonConfigured, hosted)
	})
	t.Run("a Windows pool", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one", func(o client.Object) {
			if template, ok := o.(*bootstrapv1.KubeadmConfigTemplate); ok {
				template.Spec.Template.Spec.Files = []bootstrapv1.File{{Path: "c:/k/azure.json", Content: "{}"}}
			}
		})
		c.eventuallyReports(contract.ReasonConfigured, "KubeadmConfigTemplate "+ns+
			"/one-md is for Windows nodes (a file path with a drive letter, c:/k/azure.json) and is not patched")
		c.wantPatched(t, "control plane", "KubeadmConfig")
	})
	t.Run("a template that another Cluster uses too", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		other := classic{t: t, ns: ns, name: "other"}
		deployment := &clusterv1.MachineDeployment{ObjectMeta: other.meta("other-md")}
		deployment.Spec.ClusterName = "other"
		deployment.Spec.Selector.MatchLabels = map[string]string{"pool": "other"}
		deployment.Spec.Template.Spec = other.machine("KubeadmConfigTemplate", "one-md")
		create(t, deployment)
		c := newCluster(t, ns, "one")
		c.eventuallyReports(contract.ReasonSharedTemplate, "KubeadmConfigTemplate "+ns+
			"/one-md is also used by MachineDeployment other-md of Cluster other")
		c.wantPatched(t, "control plane", "KubeadmConfig")
	})
	t.Run("an object that a topology owns", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one", func(o client.Object) {
			if _, ok := o.(*bootstrapv1.KubeadmConfigTemplate); ok {
				o.SetLabels(map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""})
			}
		})
		c.eventuallyReports(contract.ReasonTemplateNotSupported, "belongs to a ClusterClass topology")
		c.wantPatched(t, "control plane", "KubeadmConfig")
	})
}

func TestGeneratedSecret_IsRepaired(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	generated := fetch(t, ns, "one-proxy-files", &corev1.Secret{})
	if len(generated.OwnerReferences) != 1 || generated.OwnerReferences[0].UID != c.cluster().UID {
		t.Errorf("owner references %v", generated.OwnerReferences)
	}
	if generated.Labels[clusterv1.ClusterNameLabel] != "one" {
		t.Errorf("labels %v", generated.Labels)
	}
	change(t, generated, func(s *corev1.Secret) { s.Data[contract.KeyProxyEnv] = []byte("edited") })
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	if err := shared.client.Delete(t.Context(), generated); err != nil {
		t.Fatal(err)
	}
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
}

func TestKubeadmConfig_ThatWaitsIsNudgedOnce(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		switch object := o.(type) {
		case *clusterv1.Cluster:
			object.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		case *bootstrapv1.KubeadmConfig:
			object.Labels = map[string]string{clusterv1.ClusterNameLabel: "one"}
		}
	})
	c.eventuallyReports(contract.ReasonWaitingForEndpoint)
	staysQuiet(t, ns, "secrets") // and the Secret is at least a second younger
	c.endpointComes()
	c.eventuallyNudged("one-mp")
	generation := c.config().Generation
	staysQuiet(t, ns)
	if c.config().Generation != generation {
		t.Error("the nudge changed the spec")
	}
}

func TestKubeadmConfig_ThatMissedAdmissionIsPatchedInTime(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Labels = nil
		}
	})
	config := func(name, owner string, labels map[string]string) *bootstrapv1.KubeadmConfig {
		object := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta(name)}
		object.Labels = map[string]string{clusterv1.ClusterNameLabel: "one"}
		maps.Copy(object.Labels, labels)
		object.OwnerReferences = ownedBy(owner, name)
		object.Spec.JoinConfiguration.NodeRegistration.Name = "own"
		create(t, object)
		return object
	}
	waiting := config("waiting", "Machine", map[string]string{clusterv1.MachineDeploymentNameLabel: "one-md"})
	done := config("done", "Machine", map[string]string{clusterv1.MachineDeploymentNameLabel: "one-md"})
	controlPlane := config("control-plane", "Machine", map[string]string{clusterv1.MachineControlPlaneLabel: ""})
	done.Status.DataSecretName = "done"
	if err := shared.client.Status().Update(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	generations := vocabulary.Generations(done, controlPlane)

	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	})
	// The control plane has a Machine, or will have one in a moment.
	c.eventuallyReports(contract.ReasonWaitingForRollout, "KubeadmControlPlane "+ns+
		"/one waits for its next rollout, because changing it now would replace its Machines")
	patched := fetch(t, ns, "waiting", &bootstrapv1.KubeadmConfig{})
	if got := patched.Spec.Files; len(got) == 0 || got[0].ContentFrom.Secret.Name != "one-proxy-files" {
		t.Errorf("the KubeadmConfig that waits has files %v", got)
	}
	if diff := cmp.Diff(generations, vocabulary.Generations(
		fetch(t, ns, "done", &bootstrapv1.KubeadmConfig{}), fetch(t, ns, "control-plane", &bootstrapv1.KubeadmConfig{}),
	)); diff != "" {
		t.Errorf("one with bootstrap data, or one of the control plane, was written (-want +got):\n%s", diff)
	}
	staysQuiet(t, ns)

	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(noCondition)
	if got := fetch(t, ns, "waiting", &bootstrapv1.KubeadmConfig{}).Spec; len(got.Files) > 0 ||
		got.JoinConfiguration.NodeRegistration.Name != waiting.Spec.JoinConfiguration.NodeRegistration.Name {
		t.Errorf("after the label is gone the spec is %v", got)
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
