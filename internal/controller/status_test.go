package controller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

func TestNews_IsWhatDiffersFromTheLastReport(t *testing.T) {
	t.Parallel()
	var n news
	for i, step := range []struct {
		uid     types.UID
		digest  string
		changed bool
		want    bool
	}{
		{"one", "a", false, false}, // after a restart the condition says the same
		{"one", "a", true, false},  // a cache that is behind
		{"one", "b", true, true},
		{"one", "b", false, false},
		{"one", "a", false, true},
		{"two", "a", true, true},
		{"two", "a", true, false},
		{"one", "a", true, false},
	} {
		if got := n.isNew(step.uid, step.digest, step.changed); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	n.forget("one")
	if !n.isNew("one", "a", true) {
		t.Error("what was forgotten is no news")
	}
	for i := range 2 * maxNews {
		n.isNew(types.UID(fmt.Sprint(i)), "", false)
	}
	if len(n.last) > maxNews {
		t.Errorf("%d Clusters are remembered", len(n.last))
	}
}

func TestWriteOriginals_RefusesWhatNoSecretHolds(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("a", corev1.MaxSecretSize-10))
	with := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one-proxy-files"}, Data: map[string][]byte{contract.KeyProxyEnv: make([]byte, 11)}}
	for name, test := range map[string]struct {
		secret *corev1.Secret
		text   []byte
	}{
		"beside other data": {with, text},
		"alone":             {nil, append(text, "12345678901"...)},
	} {
		r := &reconciliation{Controller: &Controller{}, cluster: &clusterv1.Cluster{}, view: intent.Cluster{Namespace: "a", Name: "one"}}
		err := r.writeOriginals(t.Context(), test.secret, test.text)
		if !finding.Of(err).Has(contract.ReasonInvalidSettings) || !strings.Contains(err.Error(), "Secret a/one-proxy-files would have 1048577 bytes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
