package world_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// present is an API server, or a cache, with some Secrets. It counts what it is asked for.
type present struct {
	client.Reader
	names  map[string]bool
	labels map[string]string
	asked  int
}

func (p *present) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	p.asked++
	if !p.names[key.Name] {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	if secret, ok := object.(*corev1.Secret); ok {
		secret.Data, secret.Labels = map[string][]byte{"httpProxy": []byte(key.Name)}, p.labels
	}
	return nil
}

func TestSecrets_WithTheLabelAreWatchedAlsoIfTheCacheIsBehind(t *testing.T) {
	t.Parallel()
	for want, labels := range map[bool]map[string]string{true: {contract.LabelProxySecret: ""}, false: {"other": ""}} {
		live := &present{names: map[string]bool{"a": true}, labels: labels}
		secret, err := (&world.Memory{Cached: &present{}, Live: live}).
			ReadSecret(t.Context(), types.NamespacedName{Namespace: "team", Name: "a"})
		if err != nil || secret == nil || secret.Watched != want {
			t.Errorf("labels %v: %+v, error %v, want watched %t", labels, secret, err, want)
		}
	}
}

func TestAbsent_KeepsASecretFromBeingReadAgain(t *testing.T) {
	t.Parallel()
	live, watched := &present{names: map[string]bool{"there": true}}, &present{names: map[string]bool{}}
	secrets := &world.Memory{Cached: watched, Live: live, Known: cache.NewExpiring()}
	generated := world.GeneratedSecrets{Cached: watched, Live: live}
	read := func(name string, want bool, asked int) {
		t.Helper()
		before := live.asked
		secret, err := secrets.ReadSecret(t.Context(), types.NamespacedName{Namespace: "team", Name: name})
		if err != nil || (secret != nil) != want || live.asked-before != asked {
			t.Errorf("%s: found %v after %d requests (%v), want %v after %d", name, secret != nil, live.asked-before,
				err, want, asked)
		}
	}
	read("absent", false, 1)
	read("absent", false, 0)
	read("there", true, 1)
	read("there", true, 1) // what exists may have changed
	watched.names["absent"] = true
	read("absent", true, 0) // one with the label is known at once
	delete(watched.names, "absent")
	live.names["absent"] = true
	read("absent", false, 0)
	resolve := func(name string) error {
		cluster := settings.Cluster{Namespace: "team", Name: "c", Annotations: map[string]string{contract.AnnotationSecret: name}}
		_, err := secrets.Resolve(t.Context(), settings.Resolver{}, cluster, settings.Options{}, "")
		return err
	}
	if err := resolve("absent"); !finding.Of(err).Has(contract.ReasonSettingsNotFound) {
		t.Errorf("a Cluster without a Secret: %v", err)
	}
	read("absent", true, 1)
	for i, want := range []int{1, 1} {
		before := live.asked
		taken, err := generated.Taken(t.Context(), types.NamespacedName{Namespace: "team", Name: "free"}, "one")
		if err != nil || taken != "" || live.asked-before != want {
			t.Errorf("%d: taken %q after %d requests (%v)", i, taken, live.asked-before, err)
		}
	}
}
