// Package reported reads what the controller has reported about Clusters: a row for each.
package reported

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// State compares Machines with the configuration.
type State string

// The states.
const (
	// UpToDate: no Machine is behind.
	UpToDate State = "UpToDate"
	// MachinesBehind: some are.
	MachinesBehind State = "Behind"
	// Unknown: the controller has not compared them with a configuration that can be used.
	Unknown State = "Unknown"
	// NotPatched: the control plane is of a kind that is not patched.
	NotPatched State = "NotPatched"
)

// Machines is the state of the Machines of a control plane, or of all pools.
type Machines struct {
	State  State `json:"state"`
	Behind int   `json:"behind"`
}

// Row is the status of one Cluster.
type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Secret is the proxy Secret in use as namespace/name, or the one that the Cluster names, or "".
	Secret       string   `json:"secret,omitempty"`
	ControlPlane Machines `json:"controlPlane"`
	Pools        Machines `json:"pools"`
	// Behind are the groups of Machines that are behind. One without a name is all that had no room in the record.
	Behind []outdated.Behind `json:"behind,omitempty"`
	// Oldest is when the oldest Machine that is behind was created, nil if none is.
	Oldest *time.Time `json:"oldest,omitempty"`
	// Status, Reason and Message are those of the condition. They are "" before the first pass of the controller.
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Published is the reason of the condition of a capability, "" without one: of outputs.
	Published string `json:"published,omitempty"`
	// Paused reports whether the Cluster is paused.
	Paused bool `json:"paused,omitempty"`
	// Disabled reports whether the label says that the Cluster gets no proxy.
	Disabled bool `json:"disabled,omitempty"`
	// Warning is the code of the first warning about NO_PROXY.
	Warning string `json:"warning,omitempty"`
}

// IsBehind reports whether Machines are behind.
func (r Row) IsBehind() bool { return len(r.Behind) > 0 }

// IsCurrent reports whether the controller has compared all Machines, and none was behind.
func (r Row) IsCurrent() bool {
	return !r.IsBehind() && r.Pools.State == UpToDate &&
		(r.ControlPlane.State == UpToDate || r.ControlPlane.State == NotPatched)
}

// IsTrue reports whether the condition is True.
func (r Row) IsTrue() bool { return r.Status == string(metav1.ConditionTrue) }

// IsKnown reports whether a pass that reports a condition has compared all Machines that are patched with settings that
// can be used.
func IsKnown(status, reason string) bool {
	return status == string(metav1.ConditionTrue) || reason == contract.ReasonWaitingForRollout ||
		reason == contract.ReasonRemovalWaiting || contract.ReasonOf(reason).Remote
}

// Rows returns the rows of Clusters by namespace and name. generated are the generated Secrets, of which only the
// metadata is read, or nil if they are not known.
func Rows(clusters []clusterv1.Cluster, generated []metav1.PartialObjectMetadata) []Row {
	type key struct{ namespace, name string }
	secrets := make(map[key]map[string]string, len(generated))
	for i := range generated {
		secrets[key{generated[i].Namespace, generated[i].Name}] = generated[i].Annotations
	}
	rows := make([]Row, len(clusters))
	for i := range clusters {
		rows[i] = RowOf(&clusters[i],
			secrets[key{clusters[i].Namespace, settings.GeneratedSecretName(clusters[i].Name)}])
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// RowOf returns the row of a Cluster. generated are the annotations of its generated Secret, nil if it has none or they
// are not known.
func RowOf(cluster *clusterv1.Cluster, generated map[string]string) Row {
	asks, _ := settings.Of(cluster) // what cannot be read is in the condition
	view := asks.ApplyTo(settings.ClusterOf(cluster))
	row := Row{
		Namespace: cluster.Namespace, Name: cluster.Name, Paused: view.Paused,
		Disabled: cluster.Labels[contract.LabelEnabled] == contract.LabelDisabledValue,
	}
	row.Secret = generated[contract.AnnotationSource]
	if named := view.Annotations[contract.AnnotationSecret]; row.Secret == "" && named != "" {
		row.Secret = cluster.Namespace + "/" + named
	}
	if !isSecret(row.Secret) {
		row.Secret = ""
	}
	row.Warning, _, _ = strings.Cut(generated[contract.AnnotationWarnings], ",")
	if len(validation.IsDNS1123Label(row.Warning)) > 0 { // codes are such names
		row.Warning = ""
	}
	for _, condition := range cluster.Status.Conditions {
		if slices.Contains(contract.Conditions()[1:], condition.Type) {
			row.Published = condition.Reason
		}
		if condition.Type == contract.ConditionProxyConfigured {
			row.Status, row.Reason, row.Message = string(condition.Status), condition.Reason, condition.Message
		}
	}
	row.count(cluster.Annotations[contract.AnnotationMachinesBehind], view.ControlPlaneKind)
	return row
}

// isSecret reports whether a text names a Secret, with or without a namespace. Tenants may write what is read.
func isSecret(text string) bool {
	namespace, name, both := strings.Cut(text, "/")
	return len(validation.IsDNS1123Subdomain(namespace)) == 0 &&
		(!both || len(validation.IsDNS1123Subdomain(name)) == 0)
}

// count fills in what a record says.
func (r *Row) count(text, controlPlane string) {
	behind, err := Parse(text)
	known := err == nil && IsKnown(r.Status, r.Reason)
	for _, machines := range []*Machines{&r.ControlPlane, &r.Pools} {
		if machines.State = Unknown; known {
			machines.State = UpToDate
		}
	}
	if controlPlane != "" && controlPlane != settings.KindControlPlane {
		r.ControlPlane.State = NotPatched
	}
	if err != nil {
		return
	}
	r.Behind = behind
	var oldest time.Time
	for _, one := range behind {
		machines := &r.Pools
		if one.Kind == settings.KindControlPlane {
			machines = &r.ControlPlane
		}
		machines.State = MachinesBehind
		machines.Behind += one.Machines
		if !one.Oldest.IsZero() && (oldest.IsZero() || one.Oldest.Before(oldest)) {
			oldest = one.Oldest
		}
	}
	if !oldest.IsZero() {
		r.Oldest = &oldest
	}
}

// Parse reads a record, see outdated.Text. Anybody who may write to the Cluster may have changed it.
func Parse(text string) ([]outdated.Behind, error) {
	if text == "" {
		return nil, nil
	}
	var counts []outdated.Behind
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, fmt.Errorf("parsing the record of Machines that are behind: %w", err)
	}
	if len(counts) > outdated.MaxGroups+1 ||
		slices.ContainsFunc(counts, func(b outdated.Behind) bool { return b.Machines < 1 }) {
		return nil, fmt.Errorf("parsing the record of Machines that are behind: unexpected format")
	}
	return counts, nil
}
