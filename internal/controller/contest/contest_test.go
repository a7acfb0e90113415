package contest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestContests_BackOffAndEnd(t *testing.T) {
	t.Parallel()
	var (
		s        Contests
		one, two = Key{UID: "one"}, Key{Secret: types.NamespacedName{Namespace: "team", Name: "one"}}
		edits    = DigestOf([]patch.Edit{{List: patch.ListPre, Op: patch.OpAdd, Command: "a"}})
		other    = DigestOf([]patch.Edit{{List: patch.ListPre, Op: patch.OpAdd, Command: "b"}})
		none     = DigestOf[patch.Edit](nil)
		now      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	)
	want := []time.Duration{
		0, 0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 320 * time.Second, 640 * time.Second, 1280 * time.Second, 2560 * time.Second, time.Hour, time.Hour,
	}
	for i, delay := range want {
		s.Wrote(one, edits, now, "")
		c := s.find(one, edits, now)
		if c.count != i+1 || c.delay() != delay {
			t.Fatalf("write %d: count %d, delay %v, want %v", i+1, c.count, c.delay(), delay)
		}
		now = now.Add(max(delay, time.Second))
	}
	if c := s.find(one, other, now); c.count != 0 {
		t.Errorf("other edits are part of the contest: %+v", c)
	}
	if c := s.find(two, edits, now); c.count != 0 {
		t.Errorf("another object is part of the contest: %+v", c)
	}
	if c := s.find(one, none, now); c.count != len(want) {
		t.Errorf("an object as it should be has forgotten its contest: %+v", c)
	}
	now = now.Add(3 * time.Hour)
	if c := s.find(one, edits, now); c.count != 0 {
		t.Errorf("a write that has lasted is still a contest: %+v", c)
	}
	s.Wrote(two, edits, now, "")
	s.Wrote(two, other, now, "")
	if c := s.find(two, other, now); c.count != 1 {
		t.Errorf("a change of the settings counts as a contest: %+v", c)
	}
}

func TestDigestOfSecret_TellsContentsApart(t *testing.T) {
	t.Parallel()
	secret := func(labels, annotations map[string]string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Data: data}
	}
	known := map[Digest]string{}
	for name, one := range map[string]*corev1.Secret{
		"nothing":                 secret(nil, nil, nil),
		"label":                   secret(map[string]string{"a": "b"}, nil, nil),
		"annotation":              secret(nil, map[string]string{"a": "b"}, nil),
		"key":                     secret(nil, nil, map[string][]byte{"a": []byte("b")}),
		"empty key":               secret(nil, nil, map[string][]byte{"a": nil}),
		"value with another key":  secret(nil, nil, map[string][]byte{"a": []byte("b\"c\"d")}),
		"value with a key in it":  secret(nil, nil, map[string][]byte{"a": []byte("b\"c\" 1\nd")}),
		"two keys":                secret(nil, nil, map[string][]byte{"a": []byte("b"), "c": []byte("d")}),
		"label with a line in it": secret(map[string]string{"a": "b\"\n\"c\" \"d"}, nil, nil),
		"two labels":              secret(map[string]string{"a": "b", "c": "d"}, nil, nil),
	} {
		digest := DigestOfSecret(one)
		if other, found := known[digest]; found {
			t.Errorf("%s has the digest of %s", name, other)
		}
		if known[digest] = name; DigestOfSecret(one.DeepCopy()) != digest {
			t.Errorf("%s has two digests", name)
		}
	}
}
