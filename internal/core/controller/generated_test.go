package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestContentChanged_CountsValuesAndNotTheScript(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		contract.KeyProxyEnv: "HTTP_PROXY=\"http://p%40:1\"\n", contract.KeyTrustedCABundle: "# none\n",
		contract.KeySetup:          "#!/bin/sh\necho '$1'\n",
		contract.KeyNoProxyOrigins: "one",
	}
	for key, want := range map[string]bool{
		contract.KeyProxyEnv: true, contract.KeyTrustedCABundle: true, contract.KeySetup: false,
		contract.KeyNoProxyOrigins: false,
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

// TestSameSecret_LeavesAloneWhatIsOfOthers compares a Secret with what it should be.
func TestSameSecret_LeavesAloneWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	desired := func() *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"ours": "%"}, Annotations: map[string]string{"ours": "\n"},
				OwnerReferences: []metav1.OwnerReference{{UID: "cluster"}},
			},
			Data: map[string][]byte{"a": []byte("`$'\""), "empty": nil},
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Secret)
		same   bool
	}{
		"nothing":                      {func(*corev1.Secret) {}, true},
		"empty value as it is decoded": {func(s *corev1.Secret) { s.Data["empty"] = []byte{} }, true},
		"label of others":              {func(s *corev1.Secret) { s.Labels["theirs"] = "x" }, true},
		"annotation of others":         {func(s *corev1.Secret) { s.Annotations["theirs"] = "x" }, true},
		"another owner, too": {func(s *corev1.Secret) {
			s.OwnerReferences = append([]metav1.OwnerReference{{UID: "x"}}, s.OwnerReferences...)
		}, true},
		"another value of a label":      {func(s *corev1.Secret) { s.Labels["ours"] = "" }, false},
		"no label":                      {func(s *corev1.Secret) { s.Labels = nil }, false},
		"another value of annotation":   {func(s *corev1.Secret) { s.Annotations["ours"] = "" }, false},
		"no annotation":                 {func(s *corev1.Secret) { delete(s.Annotations, "ours") }, false},
		"warnings that are over":        {func(s *corev1.Secret) { s.Annotations[contract.AnnotationWarnings] = "x" }, false},
		"not owned":                     {func(s *corev1.Secret) { s.OwnerReferences = nil }, false},
		"owned by a Cluster before it":  {func(s *corev1.Secret) { s.OwnerReferences[0].UID = "before" }, false},
		"another value":                 {func(s *corev1.Secret) { s.Data["a"] = []byte("`$'") }, false},
		"a key that somebody added":     {func(s *corev1.Secret) { s.Data["b"] = nil }, false},
		"a key that somebody took away": {func(s *corev1.Secret) { delete(s.Data, "empty") }, false},
	} {
		current, want := desired(), desired()
		test.change(current)
		if got := sameSecret(current, want); got != test.same {
			t.Errorf("%s: same %t, want %t", name, got, test.same)
		}
		// What is written then is the same to the next pass.
		keepOthers(current, want)
		if again := desired(); !sameSecret(want, again) || want.Labels["theirs"] != current.Labels["theirs"] {
			t.Errorf("%s: what is written is not what should be, or loses a label of others", name)
		}
	}
}

// cached is a cache with one Secret.
type cached struct {
	client.Reader
	secret *corev1.Secret
	reads  int
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.reads++
	if c.secret == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "one")
	}
	if secret, ok := into.(*corev1.Secret); ok {
		*secret = *c.secret
	}
	return nil
}

// TestRead_AsksTheCacheOnce reads one that exists, and one that does not.
func TestRead_AsksTheCacheOnce(t *testing.T) {
	t.Parallel()
	there := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: "1"}}
	for name, secret := range map[string]*corev1.Secret{"exists": there, "absent": nil} {
		reader := &cached{secret: secret}
		s := NewSecrets(nil, Reader{Client: reader}, noon, &clusterv1.Cluster{}, settings.Cluster{Namespace: "a", Name: "one"}, nil)
		for range 2 {
			if got, err := s.Read(t.Context(), "one"); err != nil || (got != nil) != (secret != nil) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if reader.reads != 1 {
			t.Errorf("%s: the cache is read %d times, want 1", name, reader.reads)
		}
	}
}
