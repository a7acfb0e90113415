package render_test

import (
	"slices"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

func TestWorkload_HasWhatIsDeliveredOnly(t *testing.T) {
	t.Parallel()
	result := publish.Result{Secrets: []publish.Secret{
		{Name: "beside", Data: map[string][]byte{"k": []byte("beside")}},
		{Name: "kept", Delivered: &publish.Output{Name: "pods"}, Kept: true},
		{Name: "out", Delivered: &publish.Output{Name: "trust"}, Data: map[string][]byte{"trust.yaml": []byte("a: b\n")}},
	}}
	got := render.WorkloadStreams(result)
	if !slices.EqualFunc(got, []string{"a: b\n"}, func(g []byte, w string) bool { return string(g) == w }) {
		t.Errorf("got %q", got)
	}
	objects := render.OutputSecrets(settings.Cluster{Name: "c"}, result)
	if len(objects) != 1 { // the Secret in the management cluster
		t.Errorf("got %v", objects)
	}
}
