package world_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// vSphere is an API server with VSphereClusters by name, each with its spec.server.
type vSphere struct {
	client.Reader
	servers map[string]string
	err     error
	asked   int
}

func (v *vSphere) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	v.asked++
	server, found := v.servers[key.Name]
	switch {
	case v.err != nil:
		return v.err
	case !found:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "vsphereclusters"}, key.Name)
	}
	object.(*unstructured.Unstructured).Object["spec"] = map[string]any{"server": server} //nolint:forcetypeassert // nothing else is asked for
	return nil
}

// secretCache is a cache of generated Secrets by name.
type secretCache struct {
	client.Reader
	secrets map[string]*corev1.Secret
}

func (s secretCache) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	secret, found := s.secrets[key.Name]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	secret.DeepCopyInto(object.(*corev1.Secret)) //nolint:forcetypeassert // as above
	return nil
}

const providers = "infrastructure.cluster.x-k8s.io"

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: providers, Version: "v1beta1"}})
	m.Add(schema.GroupVersionKind{Group: providers, Version: "v1beta1", Kind: "VSphereCluster"}, meta.RESTScopeNamespace)
	return m
}

func TestInfrastructureClusters_AreReadOnceAndWhenProvisioned(t *testing.T) {
	t.Parallel()
	live := &vSphere{servers: map[string]string{"a": "first"}}
	clusters := &world.Memory{Live: live, Mapper: mapper()}
	cluster := settings.Cluster{Namespace: "ns", Name: "one", Infrastructure: settings.Reference{Group: providers, Kind: "VSphereCluster", Name: "a"}}
	ask := func(when, server string, asked int) {
		t.Helper()
		told, err := clusters.Facts(t.Context(), cluster)
		got := ""
		for _, e := range told.Facts.Entries {
			got += e.Text
		}
		if err != nil || got != server || live.asked != asked {
			t.Errorf("%s: %q after %d requests (%v), want %q after %d", when, got, live.asked, err, server, asked)
		}
	}
	ask("at first", "first", 1)
	live.servers["a"] = "second"
	ask("again", "first", 1)
	cluster.Provisioned = true
	ask("provisioned", "second", 2)
	live.servers["a"] = "third"
	ask("at rest", "second", 2)
	cluster.Infrastructure.Name = "b"
	ask("another reference, whose object is not there yet", "", 3)
	live.servers["b"] = "fourth"
	ask("when it is there", "fourth", 4)
	clusters.Forget(types.NamespacedName{Namespace: "ns", Name: "one"})
	ask("a Cluster of the same name", "fourth", 5)
	cluster.Infrastructure.Kind = "DockerCluster"
	ask("a kind that tells nothing", "", 5)
	cluster.Infrastructure.Kind = "NutanixCluster"
	ask("a kind that is not installed", "", 5)
	cluster.Infrastructure.Kind = "VSphereCluster"
	live.err = errors.New("conversion webhook away")
	if _, err := clusters.Facts(t.Context(), cluster); err == nil {
		t.Error("no error")
	}
	live.err = apierrors.NewForbidden(schema.GroupResource{}, "b", nil)
	ask("forbidden", "", 7)
	ask("and not asked again", "", 7)
}

func TestInfrastructureClusters_AreReadFromTheGeneratedSecretAfterAStart(t *testing.T) {
	t.Parallel()
	cluster := settings.Cluster{Namespace: "ns", Name: "one", Provisioned: true, Infrastructure: settings.Reference{Group: providers, Kind: "VSphereCluster", Name: "a"}}
	for name, test := range map[string]struct {
		provisioned bool
		object, of  string
		text        string
		want        string
		asked       int
	}{
		"what an earlier process has read": {true, "a", "one", "", "kept", 0},
		"read before it was provisioned":   {false, "a", "one", "", "live", 1},
		"of another object":                {true, "b", "one", "", "live", 1},
		"the Secret of another Cluster":    {true, "a", "two", "", "live", 1},
		"what somebody has written there":  {true, "a", "one", "{", "live", 1},
		"what is no list":                  {true, "a", "one", `{"kind":"VSphereCluster","entries":{}}`, "live", 1},
		"more than an object ever tells": {
			true, "a", "one", `{"group":"` + providers + `","kind":"VSphereCluster","name":"a","provisioned":true,"entries":[` +
				strings.Repeat(`{"text":"x"},`, 64) + `{"text":"x"}]}`, "live", 1,
		},
	} {
		memory := infrastructure.Memory{Group: providers, Kind: "VSphereCluster", Name: test.object, Provisioned: test.provisioned}
		memory.Facts = infrastructure.Read("VSphereCluster", test.object, map[string]any{"spec": map[string]any{"server": "kept"}})
		text, err := memory.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if test.text != "" {
			text = []byte(test.text)
		}
		secret := &corev1.Secret{Data: map[string][]byte{contract.KeyInfrastructure: text}}
		secret.Labels = map[string]string{contract.LabelGenerated: test.of, contract.LabelProxySecret: ""}
		live := &vSphere{servers: map[string]string{"a": "live"}}
		clusters := &world.Memory{
			Cached: secretCache{secrets: map[string]*corev1.Secret{"one-proxy-files": secret}}, Live: live, Mapper: mapper(),
		}
		told, err := clusters.Facts(t.Context(), cluster)
		if err != nil || len(told.Facts.Entries) != 1 || told.Facts.Entries[0].Text != test.want || live.asked != test.asked {
			t.Errorf("%s: %+v after %d requests (%v), want %s after %d", name, told.Facts.Entries, live.asked, err, test.want, test.asked)
		}
	}
}
