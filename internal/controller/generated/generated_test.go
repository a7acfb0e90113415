package generated

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

func TestContentChanged_CountsValuesAndNotTheScript(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		contract.KeyProxyEnv: "HTTP_PROXY=\"http://p%40:1\"\n", contract.KeyTrustedCABundle: "# none\n",
		contract.KeySetup:          "#!/bin/sh\necho '$1'\n",
		contract.KeyNoProxyOrigins: "one", contract.KeyAdoptedFiles: "{}",
	}
	for key, want := range map[string]bool{
		contract.KeyProxyEnv: true, contract.KeyTrustedCABundle: true, contract.KeySetup: false,
		contract.KeyNoProxyOrigins: false, contract.KeyAdoptedFiles: false,
	} {
		for what, value := range map[string][]byte{"another value": []byte("other \"'`${x}\n"), "no value": nil} {
			for _, hashed := range []bool{true, false} {
				current, desired := &corev1.Secret{Data: map[string][]byte{}}, &corev1.Secret{Data: map[string][]byte{}}
				for k, v := range base {
					current.Data[k], desired.Data[k] = []byte(v), []byte(v)
				}
				if current.Data[key] = value; value == nil {
					delete(current.Data, key)
				}
				if hashed { // render writes no hash
					current.Data[contract.KeyContentHash] = contentHash(current.Data)
				}
				desired.Data[contract.KeyContentHash] = contentHash(desired.Data)
				if got := contentChanged(current, desired); got != want {
					t.Errorf("%s with %s before, hash known %t: changed %t, want %t", key, what, hashed, got, want)
				}
			}
		}
	}
}

func TestWriteOriginals_RefusesWhatNoSecretHolds(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("a", corev1.MaxSecretSize-10))
	with := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one-proxy-files"},
		Data:       map[string][]byte{contract.KeyProxyEnv: make([]byte, 11)},
	}
	for name, test := range map[string]struct {
		secret *corev1.Secret
		text   []byte
	}{
		"beside other data": {with, text},
		"alone":             {nil, append(text, "12345678901"...)},
	} {
		s := Store{}.Of(&clusterv1.Cluster{}, intent.Cluster{Namespace: "a", Name: "one"}, nil)
		err := s.writeOriginals(t.Context(), test.secret, test.text)
		if !finding.Of(err).Has(contract.ReasonInvalidSettings) ||
			!strings.Contains(err.Error(), "Secret a/one-proxy-files would have 1048577 bytes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestLaterThan_TellsTwoContentsApart has a Secret change twice in a second, and with a clock that goes back.
func TestLaterThan_TellsTwoContentsApart(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ before, now, want time.Time }{
		"the first change":          {time.Time{}, noon.Add(900 * time.Millisecond), noon},
		"in the second of another":  {noon, noon.Add(900 * time.Millisecond), noon.Add(time.Second)},
		"a second after another":    {noon, noon.Add(time.Second), noon.Add(time.Second)},
		"with a clock of yesterday": {noon, noon.Add(-24 * time.Hour), noon.Add(time.Second)},
	} {
		if got := laterThan(test.before, test.now); !got.Equal(test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
