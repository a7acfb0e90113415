package envtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// alone creates a labelled Cluster whose only bootstrap object is that of a pool, which edit may change.
func alone(t *testing.T, ns string,
	edit func(*clusterv1.MachineDeployment, *bootstrapv1.KubeadmConfigTemplate),
) classic {
	t.Helper()
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	objects := c.objects()
	cluster, isCluster := objects[0].(*clusterv1.Cluster)
	template, isTemplate := objects[3].(*bootstrapv1.KubeadmConfigTemplate)
	deployment, isDeployment := objects[4].(*clusterv1.MachineDeployment)
	if !isCluster || !isTemplate || !isDeployment {
		t.Fatalf("the vocabulary has other objects: %T, %T, %T", objects[0], objects[3], objects[4])
	}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{}
	if edit == nil {
		create(t, cluster)
		return c
	}
	edit(deployment, template)
	create(t, cluster, c.infrastructure(), template, deployment)
	return c
}

func TestCondition_IsTrueOnlyIfSomethingCarriesTheProxyAndNothingLacksIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		create       func(t *testing.T, ns string) classic
		reason, want string
	}{
		"a control plane of another provider with Machines": {func(t *testing.T, ns string) classic {
			t.Helper()
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := classic{t: t, ns: ns, name: "one"}
			c.joined("one-cp-1", bootstrapv1.KubeadmConfigSpec{}, controlPlaneNode())
			return newCluster(t, ns, "one",
				with(func(cluster *clusterv1.Cluster) { cluster.Spec.ControlPlaneRef.Kind = "ToyControlPlane" }))
		}, contract.ReasonTemplateNotSupported, "/one is not a KubeadmControlPlane and its Machines are not patched"},
		"a hosted control plane, which has none": {func(t *testing.T, ns string) classic {
			t.Helper()
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			return newCluster(t, ns, "one",
				with(func(cluster *clusterv1.Cluster) { cluster.Spec.ControlPlaneRef.Kind = "HostedControlPlane" }))
		}, contract.ReasonConfigured, "HostedControlPlane "},
		"a hosted control plane without pools": {func(t *testing.T, ns string) classic {
			t.Helper()
			c := alone(t, ns, nil)
			c.edit(func(cluster *clusterv1.Cluster) {
				cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
					APIGroup: "controlplane.cluster.x-k8s.io", Kind: "HostedControlPlane", Name: "one",
				}
			})
			return c
		}, contract.ReasonWaitingForObjects, "/one has neither a control plane nor a pool with a bootstrap object yet"},
		"no bootstrap object at all": {
			func(t *testing.T, ns string) classic { t.Helper(); return alone(t, ns, nil) },
			contract.ReasonWaitingForObjects, "/one has neither a control plane nor a pool with a bootstrap object yet",
		},
		"a pool with bootstrap data of its own": {func(t *testing.T, ns string) classic {
			t.Helper()
			return alone(t, ns, func(deployment *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigTemplate) {
				deployment.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("own-data")}
			})
		}, contract.ReasonTemplateNotSupported, "MachineDeployment one-md has its own bootstrap data"},
		"a Windows pool": {func(t *testing.T, ns string) classic {
			t.Helper()
			return alone(t, ns, func(_ *clusterv1.MachineDeployment, template *bootstrapv1.KubeadmConfigTemplate) {
				template.Spec.Template.Spec.Files = []bootstrapv1.File{{Path: "c:/k/azure.json", Content: "{}"}}
			})
		}, contract.ReasonTemplateNotSupported, "carries the proxy"},
		"a pool that does without": {func(t *testing.T, ns string) classic {
			t.Helper()
			return alone(t, ns, func(deployment *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigTemplate) {
				deployment.Annotations = map[string]string{contract.AnnotationSecret: contract.SecretNone}
			})
		}, contract.ReasonTemplateNotSupported, "carries the proxy"},
		"a pool is enough": {func(t *testing.T, ns string) classic {
			t.Helper()
			return alone(t, ns, func(*clusterv1.MachineDeployment, *bootstrapv1.KubeadmConfigTemplate) {})
		}, contract.ReasonConfigured, "Bootstrap objects by proxy Secret: 1 uses "},
		"a MachinePool whose bootstrap data was made before the label": {
			func(t *testing.T, ns string) classic {
				t.Helper()
				proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
				c := newCluster(t, ns, "one", with(withoutLabel))
				config := c.config()
				config.Status.DataSecretName = "one-mp"
				config.Status.Initialization.DataSecretCreated = new(true)
				if err := shared.client.Status().Update(t.Context(), config); err != nil {
					t.Fatal(err)
				}
				c.edit(func(cluster *clusterv1.Cluster) {
					cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
				})
				return c
			}, contract.ReasonWaitingForRollout,
			"/one-mp already has its bootstrap data, which does not change; a new KubeadmConfig gets the current proxy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			test.create(t, ns).eventuallyReports(test.reason, test.want)
			staysQuiet(t, ns, "secrets")
		})
	}
}

func TestCondition_CountsByProxySecretAndNamesEveryFinding(t *testing.T) {
	t.Parallel()
	annotated := func(name, secret string) func(client.Object) {
		return func(o client.Object) {
			if o.GetName() == name {
				switch o.(type) {
				case *clusterv1.MachineDeployment, *clusterv1.MachinePool:
					o.SetAnnotations(map[string]string{contract.AnnotationSecret: secret})
				}
			}
		}
	}
	t.Run("counts and sentences", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy",
			map[string]string{"httpProxy": proxyURL, "noProxy": "a.example.com:80 b.example.com:80"})
		proxySecret(t, ns, "edge", map[string]string{"httpProxy": proxyURL, "noProxy": "c.example.com:80"})
		c := newCluster(t, ns, "one", annotated("one-md", "edge"), annotated("one-mp", "none"))
		c.eventuallyReports(contract.ReasonConfigured,
			fmt.Sprintf("Bootstrap objects by proxy Secret: 1 uses %s/edge, 1 uses %s/one-http-proxy, 1 has none", ns, ns),
			"\n* port-entry: Secret "+ns+"/one-http-proxy, key noProxy entry 1 ", " (and 2 more like it)")
		c.eventuallyReports(contract.ReasonConfigured)
	})
	t.Run("a bad URL and bad entries at once, of two Secrets", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": "proxy:1", "noProxy": "a,10.0.0.0/33,b:x"})
		proxySecret(t, ns, "edge", map[string]string{"httpProxy": proxyURL, "noProxy": "c/d"})
		newCluster(t, ns, "one", annotated("one-md", "edge")).eventuallyReports(contract.ReasonInvalidSettings,
			"Secret "+ns+"/one-http-proxy, key httpProxy: ", "Secret "+ns+"/one-http-proxy, key noProxy entry 2 ",
			"Secret "+ns+"/one-http-proxy, key noProxy entry 3 ", "Secret "+ns+"/edge, key noProxy entry 1 ")
	})
	t.Run("a bad annotation and a bad Secret at once", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": "proxy:1"})
		newCluster(t, ns, "one", with(func(cluster *clusterv1.Cluster) {
			cluster.Annotations = map[string]string{contract.AnnotationTargets: "x", contract.AnnotationRollout: "y"}
		})).eventuallyReports(contract.ReasonInvalidSettings, "/targets: entry 1", "/rollout: unknown value",
			"key httpProxy: ")
	})
	t.Run("a missing Secret of a pool", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		newCluster(t, ns, "one", annotated("one-mp", "edge")).eventuallyReports(contract.ReasonSettingsNotFound,
			"Secret "+ns+"/edge does not exist; create it or change annotation capi-proxy-patcher.io/secret of MachinePool one-mp")
	})
}

func TestCondition_FitsWhateverTheFindings(t *testing.T) {
	t.Parallel()
	keys := map[string]string{"httpProxy": proxyURL}
	for i := range 300 {
		keys[fmt.Sprintf("k%03d", i)] = ""
	}
	for name, test := range map[string]struct {
		data        map[string]string
		annotations map[string]string
		want        []string
	}{
		"300 unknown keys": {keys, nil, []string{`key "k000": unknown key`, "\nAnd 8 more findings"}},
		"a long annotation": {
			map[string]string{"httpProxy": proxyURL},
			map[string]string{contract.AnnotationRollout: strings.Repeat("ü\n", 33_000)},
			[]string{`annotation capi-proxy-patcher.io/rollout: unknown value "ü\n`, "…"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			proxySecret(t, ns, "one-http-proxy", test.data)
			c := newCluster(t, ns, "one", with(func(cluster *clusterv1.Cluster) { cluster.Annotations = test.annotations }))
			c.eventuallyReports(contract.ReasonInvalidSettings, test.want...)
			eventually(t, "events",
				func() string { return cmp.Diff([]string{contract.EventInvalidSettings}, reasons(eventsOf(t, ns))) })
			staysQuiet(t, ns, "secrets")
		})
	}
}

// eventsOf returns the events about Cluster one, but for those about what was done to its objects.
func eventsOf(t *testing.T, ns string) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	if err := shared.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	var found []eventsv1.Event
	for _, event := range list.Items {
		switch event.Reason {
		case contract.EventConfigured, contract.EventNotConfigured, contract.EventInvalidSettings:
			found = append(found, event)
		}
	}
	return found
}

// reasons returns the reasons of events, once for each time that they were emitted.
func reasons(events []eventsv1.Event) []string {
	var all []string
	for _, event := range events {
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		for range times {
			all = append(all, event.Reason)
		}
	}
	return all
}

func TestReport_OneEventAndOneLineForWhatIsNew(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": "proxy:1"})
	lines := func() int {
		count := 0
		for line := range strings.SplitSeq(shared.logs.String(), "\n") {
			if strings.Contains(line, `"Reporting`) && strings.Contains(line, ns) {
				count++
			}
		}
		return count
	}
	told := 0
	tells := func(reason, note string) {
		t.Helper()
		told++
		eventually(t, "events and lines in the log", func() string {
			events := eventsOf(t, ns)
			if all := reasons(events); len(all) != told || lines() != told {
				return fmt.Sprintf("events %q and %d lines, want %d", all, lines(), told)
			}
			for _, event := range events {
				if event.Reason == reason && strings.Contains(event.Note, note) {
					return ""
				}
			}
			return fmt.Sprintf("no event %s with %q among %v", reason, note, events)
		})
	}
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonInvalidSettings)
	tells(contract.EventInvalidSettings, "key httpProxy: ")
	// Another finding for the same reason.
	change(t, secret, func(s *corev1.Secret) {
		s.Data = map[string][]byte{"httpProxy": []byte(proxyURL), "noProxy": []byte("b:x")}
	})
	c.eventuallyReports(contract.ReasonInvalidSettings, "key noProxy entry 1")
	tells(contract.EventInvalidSettings, "key noProxy entry 1")
	// The same finding, again and again.
	for i := range 3 {
		c.edit(func(cluster *clusterv1.Cluster) {
			metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "own", fmt.Sprint(i))
		})
		c.eventuallyReports(contract.ReasonInvalidSettings, "key noProxy entry 1")
	}
	change(t, secret, func(s *corev1.Secret) { s.Data["noProxy"] = []byte("b.example.com") })
	c.eventuallyReports(contract.ReasonConfigured)
	tells(contract.EventConfigured, "3 use "+ns+"/one-http-proxy")
	change(t, secret, func(s *corev1.Secret) { s.Data["noProxy"] = []byte("b.example.com:80") })
	c.eventuallyReports(contract.ReasonConfigured, "port-entry")
	tells(contract.EventConfigured, "port-entry: ")
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(noCondition)
	tells(contract.EventNotConfigured, "Removed everything that this product added")
	staysQuiet(t, ns)
	if all := reasons(eventsOf(t, ns)); len(all) != told || lines() != told {
		t.Errorf("events %q and %d lines after two resyncs, want %d", all, lines(), told)
	}
}
