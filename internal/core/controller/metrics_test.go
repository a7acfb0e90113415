package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

func TestMetrics_CountTheLastPassOverEachCluster(t *testing.T) {
	t.Parallel()
	cluster := func(name string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	machines := func(count int, oldest int64) *[]outdated.Group {
		group := outdated.Group{Kind: "MachineDeployment", Name: "workers"}
		for i := range count {
			group.Machines = append(group.Machines, outdated.Machine{Created: at(oldest + int64(i))})
		}
		return &[]outdated.Group{group}
	}
	r := &Reporter{}
	r.memory.note(cluster("one"), finding.Condition{Status: "False", Reason: "InvalidSettings"}, Result{})
	r.memory.note(cluster("one"), finding.Condition{Status: "True", Reason: "Configured"}, Result{Behind: machines(2, 200), expires: at(3000), changed: at(400), Reconciled: []Reconciled{{outcome: plan.OutcomeChanged}, {outcome: plan.OutcomeUnchanged}}, others: []Reconciled{{outcome: plan.OutcomeUnchanged}, {}}})
	r.memory.note(cluster("two"), finding.Condition{Status: "True", Reason: "Configured"}, Result{Behind: machines(1, 100), changed: at(500), Reconciled: []Reconciled{{outcome: plan.OutcomeWaiting}}})
	r.memory.note(cluster("two"), finding.Condition{Status: "False", Reason: "InternalError"}, Result{}) // ended early: who is behind is not known anew
	r.memory.note(cluster("three"), finding.Condition{Status: "True", Reason: "Configured"}, Result{Behind: machines(9, 1), expires: at(1)})
	r.Forget("three")
	const all = `# HELP capi_proxy_patcher_bootstrap_objects Bootstrap objects of Clusters with condition ProxyConfigured, by state.
# TYPE capi_proxy_patcher_bootstrap_objects gauge
capi_proxy_patcher_bootstrap_objects{state="configured"} 3
capi_proxy_patcher_bootstrap_objects{state="conflict"} 0
capi_proxy_patcher_bootstrap_objects{state="left-alone"} 0
capi_proxy_patcher_bootstrap_objects{state="waiting"} 1
# HELP capi_proxy_patcher_secret_changed_timestamp_seconds When a value that nodes read last changed in a generated Secret, in seconds since 1970.
# TYPE capi_proxy_patcher_secret_changed_timestamp_seconds gauge
capi_proxy_patcher_secret_changed_timestamp_seconds 500
# HELP capi_proxy_patcher_clusters Clusters by status and reason of condition ProxyConfigured.
# TYPE capi_proxy_patcher_clusters gauge
capi_proxy_patcher_clusters{reason="Configured",status="True"} 1
capi_proxy_patcher_clusters{reason="InternalError",status="False"} 1
# HELP capi_proxy_patcher_machines_behind Machines whose bootstrap data is not what a new Machine would get.
# TYPE capi_proxy_patcher_machines_behind gauge
capi_proxy_patcher_machines_behind 3
# HELP capi_proxy_patcher_machines_behind_oldest_timestamp_seconds When the oldest Machine that is behind was created, in seconds since 1970.
# TYPE capi_proxy_patcher_machines_behind_oldest_timestamp_seconds gauge
capi_proxy_patcher_machines_behind_oldest_timestamp_seconds 100
# HELP capi_proxy_patcher_trusted_ca_expiry_timestamp_seconds When the first certificate in a key trustedCA in use expires, in seconds since 1970.
# TYPE capi_proxy_patcher_trusted_ca_expiry_timestamp_seconds gauge
capi_proxy_patcher_trusted_ca_expiry_timestamp_seconds 3000
`
	if err := testutil.CollectAndCompare(Metrics{Reporter: r}, strings.NewReader(all)); err != nil {
		t.Error(err)
	}
	const each = `# HELP capi_proxy_patcher_cluster_machines_behind Machines of a Cluster whose bootstrap data is not what a new Machine would get.
# TYPE capi_proxy_patcher_cluster_machines_behind gauge
capi_proxy_patcher_cluster_machines_behind{name="one",namespace="team"} 2
capi_proxy_patcher_cluster_machines_behind{name="two",namespace="team"} 1
# HELP capi_proxy_patcher_cluster_status 1 for the status and reason that condition ProxyConfigured of a Cluster has.
# TYPE capi_proxy_patcher_cluster_status gauge
capi_proxy_patcher_cluster_status{name="one",namespace="team",reason="Configured",status="True"} 1
capi_proxy_patcher_cluster_status{name="two",namespace="team",reason="InternalError",status="False"} 1
`
	names := []string{"capi_proxy_patcher_cluster_machines_behind", "capi_proxy_patcher_cluster_status"}
	if err := testutil.CollectAndCompare(Metrics{Reporter: r, PerCluster: true}, strings.NewReader(each), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(Metrics{Reporter: r, PerCluster: true}); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
