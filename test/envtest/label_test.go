package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// relabel gives the Cluster the label with a value.
func (c classic) relabel(value string) {
	c.t.Helper()
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = map[string]string{contract.LabelEnabled: value} })
}

// eventsOf returns the events about what a user has to know of Cluster one.
func eventsOf(t *testing.T, ns string) (found []eventsv1.Event) {
	t.Helper()
	var list eventsv1.EventList
	if err := shared.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, event := range list.Items {
		switch event.Reason {
		case contract.EventConfigured, contract.EventNotConfigured, contract.EventInvalidSettings:
			found = append(found, event)
		}
	}
	return found
}

// TestUnknownLabelValue_IsReported: that nothing changes is held by the model.
func TestUnknownLabelValue_IsReported(t *testing.T) {
	const unknown = `label capi-proxy-patcher.io/enabled: unknown value "True", which changes nothing; use "true" or "false"`
	c := oneCluster(t)
	ns := c.ns
	c.eventuallyConfigured()
	before, generated := c.snapshot(), c.generated()
	c.relabel("True")
	c.eventuallyReports(contract.ReasonInvalidSettings, unknown)
	eventually(t, "event", func() string {
		events := eventsOf(t, ns)
		if !slices.ContainsFunc(events, func(e eventsv1.Event) bool {
			return e.Reason == contract.EventInvalidSettings && strings.Contains(e.Note, unknown)
		}) {
			return fmt.Sprintf("none of %v says %s", events, unknown)
		}
		return ""
	})
	staysQuiet(t, ns)
	if diff := cmp.Diff(before, c.snapshot()) + cmp.Diff(generated, c.generated()); diff != "" {
		t.Errorf("objects changed:\n%s", diff)
	}
}

func TestUnknownNames_AreReported(t *testing.T) {
	t.Parallel()
	const rollout = "unknown-name: annotation capi-proxy-patcher.io/rolout: unknown annotation, ignored; did you mean capi-proxy-patcher.io/rollout?"
	t.Run("in the condition and an event", func(t *testing.T) {
		c := oneCluster(t)
		ns := c.ns
		c.eventuallyReports(contract.ReasonConfigured)
		c.edit(annotated("capi-proxy-patcher.io/rolout", contract.RolloutImmediate))
		c.eventuallyReports(contract.ReasonConfigured, rollout)
		change(t, fetch(t, ns, "one-md", &clusterv1.MachineDeployment{}), func(o *clusterv1.MachineDeployment) {
			o.Annotations = map[string]string{"capi-proxy-patcher.io/secrets": "other"}
		})
		c.eventuallyReports(contract.ReasonConfigured,
			"annotation capi-proxy-patcher.io/secrets of MachineDeployment one-md: ", "did you mean capi-proxy-patcher.io/secret?")
		eventually(t, "events", func() string {
			for _, event := range eventsOf(t, ns) {
				if strings.Contains(event.Note, rollout) {
					return ""
				}
			}
			return "none has the annotation"
		})
		staysQuiet(t, ns)
	})
	t.Run("to whoever writes them", func(t *testing.T) {
		ns := admitted(t, namespace(t), webhooksLive)
		c := newCluster(t, ns, "one", topologyCluster)
		said := func(kind, name, key string, wants ...string) {
			t.Helper()
			out := mustKubectl(t, "", "annotate", "--overwrite", "--dry-run=server", kind, name, "-n", ns, key)
			for _, want := range wants {
				if !strings.Contains(out, "Warning: capi-proxy-patcher: "+want) {
					t.Errorf("kubectl annotate %s printed %q, want %q", key, out, want)
				}
			}
			if len(wants) == 0 && strings.Contains(out, "Warning") {
				t.Errorf("kubectl annotate %s printed %q", key, out)
			}
		}
		said("cluster", "one", "capi-proxy-patcher.io/rolout=Immediate", rollout)
		said("cluster", "one", "capi-proxy-patcher.io/rollout=Immediate")
		said("cluster", "one", "example.com/rolout=a")
		said("machinedeployment", "one-md", "capi-proxy-patcher.io/rollout=Immediate") // the Cluster says what it has
		plain := newCluster(t, ns, "plain")
		said("machinedeployment", "plain-md", "capi-proxy-patcher.io/rollout=Immediate",
			"unknown-name: annotation capi-proxy-patcher.io/rollout: ")
		said("machinepool", "plain-mp", "capi-proxy-patcher.io/secret=none")
		out := mustKubectl(t, "", "label", "--overwrite", "cluster", "plain", "-n", ns, "capi-proxy-patcher.io/enabled=yes",
			"capi-proxy-patcher.io/enable=true")
		for _, want := range []string{
			`label capi-proxy-patcher.io/enabled: unknown value "yes"`,
			"unknown-name: label capi-proxy-patcher.io/enable: ",
		} {
			if !strings.Contains(out, "Warning: capi-proxy-patcher: "+want) {
				t.Errorf("kubectl label printed %q, want %q", out, want)
			}
		}
		plain.eventuallyReports(contract.ReasonInvalidSettings)
		c.edit(func(cluster *clusterv1.Cluster) {
			cluster.Spec.Topology.Workers.MachineDeployments[0].Metadata.Annotations = map[string]string{"capi-proxy-patcher.io/secrets": "x"}
		})
		said("cluster", "one", "own=x",
			"unknown-name: annotation capi-proxy-patcher.io/secrets of MachineDeployment batch of spec.topology: ")
	})
}
