package bootstrap

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer answers patches with an error, and has an object in one version, or none if that is "".
type apiServer struct {
	client.Client

	answer  error
	version string
	reads   int
}

func (s *apiServer) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return s.answer
}

func (*apiServer) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return bootstrapv1.GroupVersion.WithKind("KubeadmConfig"), nil
}

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.reads++
	if s.version == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kubeadmconfigs"}, key.Name)
	}
	object.SetResourceVersion(s.version)
	return nil
}

func TestPatchJSON_ConflictsWithAnOldVersion(t *testing.T) {
	t.Parallel()
	// What an API server answers to a JSON patch that it cannot carry out.
	impossible := apierrors.NewGenericServerResponse(422, "patch", schema.GroupResource{}, "", "", 0, false)
	refused := errors.New("connection refused")
	for name, test := range map[string]struct {
		answer   error
		version  string
		conflict bool
		reads    int
	}{
		"a patch that works":                            {nil, "7", false, 0},
		"a patch that fails for another reason":         {refused, "8", false, 0},
		"an impossible patch of the present version":    {impossible, "7", false, 1},
		"an impossible patch of a version of the past":  {impossible, "8", true, 1},
		"an impossible patch of an object that is gone": {impossible, "", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &apiServer{answer: test.answer, version: test.version}
			c := &Writer{Client: server, Live: server, Now: func() time.Time { return time.Time{} }}
			config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "one",
				ResourceVersion: "7",
			}}
			err := c.patchJSON(t.Context(), config, []byte("[]"))
			if apierrors.IsConflict(err) != test.conflict || !test.conflict && !errors.Is(err, test.answer) ||
				server.reads != test.reads {
				t.Errorf("error %v after %d reads", err, server.reads)
			}
		})
	}
}

func TestIsBehind_KnowsTheVersionThatWasWritten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &Writer{Client: &apiServer{version: "10"}, Now: func() time.Time { return now }}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: "10"}}
	if err := c.patchJSON(t.Context(), config, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"9": true, "10": false, "11": false, "": false, "x": false} {
		cached := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: version}}
		if got := c.IsBehind(cached); got != want {
			t.Errorf("version %q is behind: %t, want %t", version, got, want)
		}
	}
	if other := (&bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
		UID:             "two",
		ResourceVersion: "9",
	}}); c.IsBehind(other) {
		t.Error("an object that was never written is behind")
	}
	now = now.Add(writtenMemory)
	config.ResourceVersion = "9"
	if c.IsBehind(config) {
		t.Error("a version is remembered for ever")
	}
}
