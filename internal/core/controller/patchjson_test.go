package controller

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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
)

// answering answers patches with an error, and has an object in one version, or none if that is "".
type answering struct {
	client.Client

	answer  error
	version string
	reads   int
}

func (s *answering) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return s.answer
}

func (*answering) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return bootstrapv1.GroupVersion.WithKind("KubeadmConfig"), nil
}

func (s *answering) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
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
			server := &answering{answer: test.answer, version: test.version}
			c := &Writer{Client: backoff.New(server, server, func() time.Time { return time.Time{} }), Live: server}
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
