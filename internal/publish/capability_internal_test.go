package publish

import (
	"slices"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

func TestPublished_HasWhatHasContent(t *testing.T) {
	t.Parallel()
	got := published(output.Result{Secrets: []output.Secret{
		{Name: "beside", Output: "o", Data: map[string][]byte{"k": []byte("beside")}},
		{Name: "old", Kept: true},
		{Name: "kept", Delivered: &output.Output{Name: "pods"}, Kept: true},
		{Name: "out", Delivered: &output.Output{Name: "trust"}, Data: map[string][]byte{"trust.yaml": []byte("a: b\n")}},
	}})
	if !slices.EqualFunc(got.Streams, []string{"a: b\n"}, func(g []byte, w string) bool { return string(g) == w }) {
		t.Errorf("got %q", got.Streams)
	}
	if len(got.Secrets) != 1 || got.Secrets[0].Name != "beside" {
		t.Errorf("got %v", got.Secrets)
	}
}
