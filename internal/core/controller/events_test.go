package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// TestEvents_FoldAllOfAPassIntoOne has passes change objects and have news or not.
func TestEvents_FoldAllOfAPassIntoOne(t *testing.T) {
	t.Parallel()
	configured := finding.Condition{
		Status: "True", Reason: contract.ReasonConfigured,
		Message: "4 objects use 100% proxy a/b",
	}
	for name, row := range map[string]struct {
		emit func(*Reporter)
		want []string
	}{
		"changes without news": {
			func(r *Reporter) {
				r.changed(&clusterv1.Cluster{}, changes{added: []string{"KubeadmControlPlane a/%s"}, removed: []string{"B c/d"}})
			},
			[]string{"Normal ProxySettingsInjected Added the proxy to KubeadmControlPlane a/%s. Removed the proxy from B c/d"},
		},
		"changes and news": {
			func(r *Reporter) {
				r.reported(&clusterv1.Cluster{}, configured, changes{added: []string{"A b/c", "D e/f"}}.String())
			},
			[]string{"Normal ProxyConfigured Added the proxy to A b/c, D e/f. 4 objects use 100% proxy a/b"},
		},
		"the end": {
			func(r *Reporter) { r.gone(&clusterv1.Cluster{}, changes{removed: []string{"A b/c"}}.String()) },
			[]string{"Normal ProxyNotConfigured Removed the proxy from A b/c. Removed everything that this product added"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(10)
			row.emit(&Reporter{Recorder: recorder})
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				got = append(got, event)
			}
			if strings.Join(got, "\n") != strings.Join(row.want, "\n") {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestChanges_NameAFewOfMany(t *testing.T) {
	t.Parallel()
	var all changes
	for i := range 4000 {
		all.added = append(all.added, fmt.Sprintf("A a/%d", i))
	}
	if got := all.String(); got != "Added the proxy to A a/0, A a/1, A a/2, A a/3, A a/4 and 3995 more" {
		t.Errorf("got %s", got)
	}
}
