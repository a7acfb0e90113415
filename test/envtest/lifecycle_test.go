package envtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// It runs alone, before the tests that run in parallel: they share the installation-wide Secret.
func TestInstallationWideSecret_ReachesTheClustersThatUseIt(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	mayUseDefault(t, ns.Name, true)
	proxySecret(t, ns.Name, "own-http-proxy", map[string]string{"httpProxy": proxyURL})
	served := newCluster(t, ns.Name, "served")
	own := newCluster(t, ns.Name, "own")
	served.eventuallyHas(`HTTP_PROXY="http://installation.example.com:3128"`)
	own.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)

	secret := fetch(t, defaultSecretNamespace, defaultSecretName, &corev1.Secret{})
	before := secret.DeepCopy().Data
	change(t, secret, func(s *corev1.Secret) {
		s.Data = map[string][]byte{
			"httpProxy": []byte("http://moved.example.com:3128"),
			"noProxy":   []byte("moved.example.com"),
		}
	})
	served.eventuallyHas(`HTTP_PROXY="http://moved.example.com:3128"`)
	// Its entries are a layer of everybody's NO_PROXY.
	eventually(t, "NO_PROXY of a Cluster with a Secret of its own", func() string {
		if env := string(own.generated()[contract.KeyProxyEnv]); !strings.Contains(env, "moved.example.com") ||
			strings.Contains(env, "installation.example.com") {
			return env
		}
		return ""
	})
	change(t, secret, func(s *corev1.Secret) { s.Data = before })
	served.eventuallyHas(`HTTP_PROXY="http://installation.example.com:3128"`)
}

func TestCluster_ChangesReachTheGeneratedSecretOnly(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "other", map[string]string{"httpProxy": "http://other.example.com:3128"})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	before, generations := c.snapshot(), c.generations()
	noProxy := func() string {
		for line := range strings.Lines(string(c.generated()[contract.KeyProxyEnv])) {
			if strings.HasPrefix(line, "NO_PROXY=") {
				return line
			}
		}
		return ""
	}
	for _, step := range []struct {
		what        string
		edit        func(*clusterv1.Cluster)
		has, hasNot string
	}{
		{"the Pod network", func(o *clusterv1.Cluster) { o.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"172.20.0.0/16"} }, ",172.20.0.0/16,", ",10.244.0.0/16,"},
		{"the Service network", func(o *clusterv1.Cluster) {
			o.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"fd00:10::/108"}
		}, ",fd00:10::/108,", ",10.96.0.0/12,"},
		{"the service domain", func(o *clusterv1.Cluster) { o.Spec.ClusterNetwork.ServiceDomain = "corp.local" }, ",.corp.local,", ",.cluster.local,"},
		{"a group is left out", func(o *clusterv1.Cluster) {
			o.Annotations = map[string]string{contract.AnnotationNoProxyGroups: "-pods"}
		}, ",.corp.local,", ",172.20.0.0/16,"},
	} {
		c.edit(step.edit)
		eventually(t, step.what, func() string {
			if line := noProxy(); !strings.Contains(line, step.has) || strings.Contains(line, step.hasNot) {
				return line
			}
			return ""
		})
	}
	c.edit(func(o *clusterv1.Cluster) { o.Annotations = map[string]string{contract.AnnotationSecret: "other"} })
	c.eventuallyHas(`HTTP_PROXY="http://other.example.com:3128"`)
	if diff := cmp.Diff(before, c.snapshot()); diff != "" {
		t.Errorf("specs changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(generations, c.generations()); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
	eventually(t, "observedGeneration", func() string {
		if got, want := c.condition().ObservedGeneration, c.cluster().Generation; got != want {
			return "the condition is about an older generation"
		}
		return ""
	})
}

func TestGeneratedSecret_RepairLeavesNoMachineBehind(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
		}
	})
	c.eventuallyReports(contract.ReasonConfigured)
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	time.Sleep(pause)
	change(t, fetch(t, ns, "one-proxy-files", &corev1.Secret{}),
		func(s *corev1.Secret) { s.Data[contract.KeyProxyEnv] = []byte("edited") })
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	if err := shared.client.Delete(t.Context(), fetch(t, ns, "one-proxy-files", &corev1.Secret{})); err != nil {
		t.Fatal(err)
	}
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.eventuallyReports(contract.ReasonConfigured)
	staysQuiet(t, ns)
	c.eventuallyRollsOut(false, false)
	if message := c.condition().Message; strings.Contains(message, "outdated") {
		t.Error(message)
	}
}

func TestUpgradeOfTheProduct_ReplacesTheScriptAndLeavesNoMachineBehind(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", with(annotated(contract.AnnotationRollout, contract.RolloutImmediate)))
	c.eventuallyReports(contract.ReasonConfigured)
	script := c.generated()[contract.KeySetup]
	if !strings.HasPrefix(string(script), "#!/bin/sh\n") {
		t.Fatalf("the generated Secret has the script %q", script)
	}
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.eventuallyReports(contract.ReasonConfigured)
	before := c.snapshot()
	// as an earlier version of the product writes it
	change(t, fetch(t, ns, "one-proxy-files", &corev1.Secret{}), func(s *corev1.Secret) {
		s.Data[contract.KeySetup] = []byte("#!/bin/sh\n# Managed by capi-proxy-patcher\nexit 0\n")
		delete(s.Data, contract.KeyContentHash)
	})
	eventually(t, "the script", func() string {
		if got := c.generated()[contract.KeySetup]; !bytes.Equal(got, script) {
			return fmt.Sprintf("the generated Secret has %q", got)
		}
		return ""
	})
	c.eventuallyReports(contract.ReasonConfigured)
	staysQuiet(t, ns)
	c.eventuallyRollsOut(false, false)
	if changed := fetch(t, ns, "one-proxy-files",
		&corev1.Secret{}).Annotations[contract.AnnotationChangedAt]; changed != "" {
		t.Errorf("the values count as changed at %s", changed)
	}
	if message := c.condition().Message; strings.Contains(message, "outdated") {
		t.Error(message)
	}
	if diff := cmp.Diff(before, c.snapshot()); diff != "" {
		t.Errorf("specs changed (-before +after):\n%s", diff)
	}
}

func TestCommand_ThatLooksLikeOursIsTheUsers(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if template, ok := o.(*bootstrapv1.KubeadmConfigTemplate); ok {
			template.Spec.Template.Spec.PreKubeadmCommands = []string{"rm -rf /var/cache/apt # capi-proxy-patcher"}
		}
	})
	c.eventuallyReports(contract.ReasonConflictingFile, "KubeadmConfigTemplate "+ns+
		"/one-md: preKubeadmCommands[0]: ends with the marker")
	if got := c.template().Generation; got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
	staysQuiet(t, ns)
}

func TestTemplate_FollowsItsPoolToAnotherCluster(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "two-http-proxy", map[string]string{"httpProxy": "http://two.example.com:3128"})
	one := newCluster(t, ns, "one")
	two := newCluster(t, ns, "two")
	one.eventuallyReports(contract.ReasonConfigured)
	two.eventuallyReports(contract.ReasonConfigured)
	user := func() string { return one.template().Spec.Template.Spec.Files[0].ContentFrom.Secret.Name }
	if user() != "one-proxy-files" {
		t.Fatalf("the template refers to %s", user())
	}
	if err := shared.client.Delete(t.Context(), one.deployment()); err != nil {
		t.Fatal(err)
	}
	change(t, two.deployment(),
		func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "one-md" })
	eventually(t, "the template", func() string {
		if user() != "two-proxy-files" {
			return "it refers to Secret " + user()
		}
		return ""
	})
	one.eventuallyReports(contract.ReasonConfigured, "Bootstrap objects by proxy Secret: 2 use ")

	// To a Cluster without the label: its entries go.
	three := newCluster(t, ns, "three", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	if err := shared.client.Delete(t.Context(), two.deployment()); err != nil {
		t.Fatal(err)
	}
	change(t, three.deployment(),
		func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "one-md" })
	eventually(t, "the template", func() string {
		if one.isPatched("template") {
			return "it still has the proxy of Cluster two"
		}
		return ""
	})
}

func TestCluster_DeletionIsNotBlocked(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	owner := c.cluster()
	secret := fetch(t, ns, "one-proxy-files", &corev1.Secret{})
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != owner.UID ||
		secret.OwnerReferences[0].BlockOwnerDeletion != nil {
		t.Errorf("owner references %v", secret.OwnerReferences)
	}
	for _, object := range []client.Object{owner, secret, c.controlPlane(), c.template(), c.config(), c.deployment()} {
		if len(object.GetFinalizers()) > 0 {
			t.Errorf("%T has finalizers %v", object, object.GetFinalizers())
		}
	}
	if err := shared.client.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(owner), owner); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want the Cluster to be gone at once", err)
	}
	staysQuiet(t, ns)
}

func TestEvents_AreEmittedAtTransitionsOnly(t *testing.T) {
	ns := namespace(t)
	c := newCluster(t, ns, "one", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Annotations = map[string]string{contract.AnnotationSecret: "late"}
		}
	})
	c.eventuallyReports(contract.ReasonSettingsNotFound)
	events := func() map[string]int {
		var list eventsv1.EventList
		if err := shared.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, event := range list.Items {
			if event.Regarding.Kind != "Cluster" || event.Regarding.Name != "one" {
				t.Errorf("an event is about %v", event.Regarding)
			}
			count[event.Reason]++
			if event.Series != nil {
				count[event.Reason] += int(event.Series.Count) - 1
			}
		}
		// A pass that adds to objects, or removes from them, says so in the event of its report, if it has one.
		if n := count[contract.EventSettingsInjected] + count[contract.EventSettingsRemoved]; n > 4 {
			t.Errorf("%d events about three objects, beside the reports: %v", n, count)
		}
		delete(count, contract.EventSettingsInjected)
		delete(count, contract.EventSettingsRemoved)
		return count
	}
	eventuallyEvents := func(want map[string]int) {
		t.Helper()
		eventually(t, "events", func() string { return cmp.Diff(want, events()) })
	}
	missing := map[string]int{contract.EventInvalidSettings: 1} // bootstrap waits for the Secret
	eventuallyEvents(missing)
	time.Sleep(2 * resync)
	eventuallyEvents(missing)
	proxySecret(t, ns, "late", map[string]string{"httpProxy": proxyURL})
	c.eventuallyReports(contract.ReasonConfigured)
	eventuallyEvents(map[string]int{contract.EventInvalidSettings: 1, contract.EventConfigured: 1})
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(noCondition)
	all := map[string]int{
		contract.EventInvalidSettings: 1, contract.EventConfigured: 1, contract.EventNotConfigured: 1,
	}
	eventuallyEvents(all)
	time.Sleep(2 * resync)
	eventuallyEvents(all)
}

func TestPools_ThatShareATemplateMustAgree(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "dmz", map[string]string{"httpProxy": "http://dmz.example.com:3128"})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	before := c.snapshot()
	second := &clusterv1.MachineDeployment{ObjectMeta: c.meta("one-second")}
	second.Annotations = map[string]string{contract.AnnotationSecret: "dmz"}
	second.Spec.ClusterName = "one"
	second.Spec.Selector.MatchLabels = map[string]string{"pool": "second"}
	second.Spec.Template.Labels = second.Spec.Selector.MatchLabels
	second.Spec.Template.Spec = c.machine("KubeadmConfigTemplate", "one-md")
	create(t, second)
	c.eventuallyReports(contract.ReasonSharedTemplate,
		"MachineDeployment one-md and MachineDeployment one-second share KubeadmConfigTemplate "+ns+"/one-md but name different proxy Secrets")
	staysQuiet(t, ns)
	if diff := cmp.Diff(before, c.snapshot()); diff != "" {
		t.Errorf("the shared template changed (-before +after):\n%s", diff)
	}
	if got := c.generated(); got == nil {
		t.Error("the Secret that the template refers to is gone")
	}
	change(t, c.deployment(), func(o *clusterv1.MachineDeployment) { o.Annotations = second.Annotations })
	c.eventuallyReports(contract.ReasonConfigured)
}

func TestSecret_OfAnotherNamespaceIsNotRead(t *testing.T) {
	ns, other := namespace(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, other)
	proxySecret(t, other.Name, "elsewhere", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Annotations = map[string]string{contract.AnnotationSecret: "elsewhere"}
		}
	})
	c.eventuallyReports(contract.ReasonSettingsNotFound, "Secret "+ns+"/elsewhere does not exist")
	change(t, c.cluster(),
		func(o *clusterv1.Cluster) { o.Annotations[contract.AnnotationSecret] = other.Name + "/elsewhere" })
	c.eventuallyReports(contract.ReasonInvalidSettings, "annotation capi-proxy-patcher.io/secret")
	for _, request := range shared.requests.in(other.Name) {
		if strings.Contains(request, "/secrets/elsewhere") {
			t.Errorf("the manager sent %s", request)
		}
	}
}

func TestGeneratedSecret_CreatedAfterRemovalIsDeleted(t *testing.T) {
	ns := namespace(t)
	unlabelled := func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) }
	one, two := newCluster(t, ns, "one", unlabelled), newCluster(t, ns, "two", unlabelled)
	late := func(cluster string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: cluster + "-proxy-files",
				Labels: map[string]string{contract.LabelGenerated: cluster},
			},
			StringData: data,
		}
	}
	before := one.snapshot() + two.snapshot()
	written := late("one", map[string]string{contract.KeyProxyEnv: "x", contract.KeyContentHash: "x"})
	written.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "one", UID: one.cluster().UID,
	}}
	create(t, written, late("two", map[string]string{contract.KeyProxyEnv: "x"}))
	eventually(t, "the Secret of a process that ended", func() string {
		if one.generated() != nil {
			return "is still there"
		}
		return ""
	})
	time.Sleep(2 * resync)
	if two.generated() == nil {
		t.Error("a Secret that render has made for a Cluster without the label is gone")
	}
	if one.snapshot()+two.snapshot() != before || one.condition().Reason != noCondition {
		t.Error("an unlabelled Cluster was touched")
	}
}

func TestRemoval_ForgetsTheVersionOfEntriesThatAreGoneAlready(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = new(true) })
	change(t, c.template(), func(o *bootstrapv1.KubeadmConfigTemplate) {
		o.Spec.Template.Spec = bootstrapv1.KubeadmConfigSpec{PreKubeadmCommands: []string{"true"}}
	})
	if c.template().Annotations[contract.AnnotationOutputVersion] == "" {
		t.Fatal("the version is not recorded")
	}
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Paused = nil
		delete(cluster.Labels, contract.LabelEnabled)
	})
	c.eventuallyReports(noCondition)
	if got := c.template().Annotations[contract.AnnotationOutputVersion]; got != "" {
		t.Errorf("version %s is still recorded", got)
	}
	staysQuiet(t, ns)
}

// TestTemplate_PatchedBeforeTheFirstPassIsGivenBack has a template with the entries of a Cluster that no pass has seen
// with the label, and that no pool of it uses any more.
func TestTemplate_PatchedBeforeTheFirstPassIsGivenBack(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	one := newCluster(t, ns, "one")
	two := newCluster(t, ns, "two", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	one.eventuallyReports(contract.ReasonConfigured)
	moved := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: two.meta("moved"), Spec: one.template().Spec}
	moved.Annotations = map[string]string{contract.AnnotationOutputVersion: "1"}
	for i := range moved.Spec.Template.Spec.Files {
		if secret := &moved.Spec.Template.Spec.Files[i].ContentFrom.Secret; secret.Name == "one-proxy-files" {
			secret.Name = "two-proxy-files"
		}
	}
	create(t, moved)
	eventually(t, "the template as before", func() string {
		now := fetch(t, ns, "moved", &bootstrapv1.KubeadmConfigTemplate{})
		if patch.IsPatched(api.Spec(&now.Spec.Template.Spec)) || now.Annotations[contract.AnnotationOutputVersion] != "" {
			return "it has the entries, or the record of their version"
		}
		return ""
	})
	if reason := two.condition().Reason; reason != noCondition {
		t.Errorf("a Cluster without the label has a condition with reason %s", reason)
	}
	staysQuiet(t, ns)
}

func TestPoolsOfOneName_HaveGeneratedSecretsOfTheirOwn(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "dmz", map[string]string{"httpProxy": "http://dmz.example.com:3128"})
	proxySecret(t, ns, "lab", map[string]string{"httpProxy": "http://lab.example.com:3128"})
	c := newCluster(t, ns, "one", func(o client.Object) {
		if o.GetName() == "one-md" {
			o.SetAnnotations(map[string]string{contract.AnnotationSecret: "dmz"})
		}
	})
	c.eventuallyReports(contract.ReasonConfigured)
	const deployments = "one.one-md.md.proxy-files"
	env := string(c.secret(deployments)[contract.KeyProxyEnv])
	if !strings.Contains(env, "dmz.example.com") {
		t.Fatalf("Secret %s is not that of the pool:\n%s", deployments, env)
	}

	config := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta("one-md-of-pool")}
	pool := &clusterv1.MachinePool{ObjectMeta: c.meta("one-md")}
	pool.Annotations = map[string]string{contract.AnnotationSecret: "lab"}
	pool.Spec.ClusterName = "one"
	pool.Spec.Template.Spec = c.machine("KubeadmConfig", "one-md-of-pool")
	create(t, config, pool)
	const own = "one.one-md.mp.proxy-files"
	eventually(t, "the generated Secret of the MachinePool", func() string {
		if env := string(c.secret(own)[contract.KeyProxyEnv]); !strings.Contains(env, "lab.example.com") {
			return "it has\n" + env
		}
		return ""
	})
	c.eventuallyReports(contract.ReasonConfigured)
	if got := string(c.secret(deployments)[contract.KeyProxyEnv]); got != env {
		t.Errorf("the values of the MachineDeployment changed to\n%s", got)
	}
	if got := patch.References(api.Spec(&fetch(t, ns, "one-md-of-pool", &bootstrapv1.KubeadmConfig{}).Spec)); len(
		got) == 0 || got[0] != own {
		t.Errorf("the MachinePool refers to %v", got)
	}
	staysQuiet(t, ns)
}

// TestControlPlane_IsLeftAloneWhileItsFirstMachineIsCreated is about a cache that is behind: Cluster API has cloned the
// KubeadmConfig of the first Machine, and the Machine is not seen yet.
func TestControlPlane_IsLeftAloneWhileItsFirstMachineIsCreated(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "one-first",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "one", clusterv1.MachineControlPlaneLabel: ""},
	}}
	create(t, config)
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonWaitingForRollout, "KubeadmControlPlane "+ns+
		"/one waits for its next rollout, because changing it now would replace its Machines")
	c.wantPatched(t, "template", "KubeadmConfig")
	staysQuiet(t, ns)

	// It was not to be: Cluster API takes the KubeadmConfig back when the Machine cannot be created.
	if err := shared.client.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, everyObject...)
}
