package envtest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

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
