package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// adoptedSpec returns handWritten with both of its drop-ins adopted, and their originals.
func adoptedSpec(t *testing.T) (text string, originals map[string]json.RawMessage) {
	t.Helper()
	all := recipe(t, patch.Options{Delivery: contract.DeliveryReference})
	spec, files := specOfJSON(t, handWritten)
	originals = map[string]json.RawMessage{}
	for _, edit := range patch.Adopt(spec, all, func(int) bool { return true }) {
		original, err := json.Marshal(files[edit.Index])
		if err != nil {
			t.Fatal(err)
		}
		originals[edit.File.Path] = original
	}
	edits, err := patch.EnsureOrAdopt(spec, all, true)
	if err != nil || len(originals) != 2 {
		t.Fatalf("%d originals, %v", len(originals), err)
	}
	return applied(t, handWritten, edits), originals
}

func TestBring_RestoresWhatTheRecipeDoesNotNeed(t *testing.T) {
	t.Parallel()
	containerd, kubelet := systemd.DropInPath("containerd"), systemd.DropInPath("kubelet")
	for name, test := range map[string]struct {
		options patch.Options
		back    []string
	}{
		"all targets":             {patch.Options{}, nil},
		"without kubelet":         {patch.Options{Targets: []contract.Target{"containerd", "kubeadm", "trust"}}, []string{kubelet}},
		"without containerd":      {patch.Options{Targets: []contract.Target{"kubelet"}}, []string{containerd}},
		"without units":           {patch.Options{Targets: []contract.Target{"trust"}}, []string{containerd, kubelet}},
		"Inline for kubelet":      {patch.Options{Delivery: contract.DeliveryInline, Settings: plain(t), Targets: []contract.Target{"kubelet"}}, []string{containerd}},
		"Inline without any unit": {patch.Options{Delivery: contract.DeliveryInline, Settings: plain(t), Targets: []contract.Target{"kubeadm"}}, []string{containerd, kubelet}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, originals := adoptedSpec(t)
			spec, _ := specOfJSON(t, text)
			narrow := recipe(t, test.options)
			if got := patch.GivesUp(spec, narrow); got != (len(test.back) > 0 || strings.HasPrefix(name, "Inline")) {
				t.Errorf("GivesUp is %v", got)
			}
			brought, err := patch.Bring(spec, narrow, originals)
			if err != nil {
				t.Fatal(err)
			}
			narrowed := applied(t, text, brought.Edits)
			after, files := specOfJSON(t, narrowed)
			if again, err := patch.Bring(after, narrow, originals); err != nil || len(again.Edits) > 0 {
				t.Errorf("a second call has edits %+v, error %v", again.Edits, err)
			}
			for path, original := range originals {
				want, count := patch.Replaced, 0
				for _, back := range test.back {
					if back == path {
						want = patch.Back
					}
				}
				for _, file := range files {
					if patch.SameEntry(file, original) {
						count++
					}
				}
				if got := patch.PlaceOf(after, path); got != want || (count == 1) != (want == patch.Back) {
					t.Errorf("%s: place %d, want %d; the original is there %d times", path, got, want, count)
				}
			}
			if got := patch.Spared(after, narrow); len(got) != len(test.back) {
				t.Errorf("spared %q, want %d files", got, len(test.back))
			}
			restored := applied(t, narrowed, patch.Take(after, originals))
			if diff := cmp.Diff(canonical(t, handWritten), canonical(t, restored)); diff != "" {
				t.Errorf("after removal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOriginal_IsObsoleteWhenTheUserWritesTheFileAgain(t *testing.T) {
	t.Parallel()
	text, originals := adoptedSpec(t)
	newer := strings.Replace(text, `"/etc/hosts.allow"`, `"/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf"`, 1)
	spec, _ := specOfJSON(t, newer)
	after, _ := specOfJSON(t, applied(t, newer, patch.Take(spec, originals)))
	count := 0
	for _, f := range after.Files {
		if f.Path == "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf" {
			count++
		}
	}
	if count != 1 || patch.IsPatched(after) {
		t.Errorf("the path is there %d times, want once: Cluster API refuses it twice", count)
	}
}

func TestPlaceOf_KnowsWhatIsNowhere(t *testing.T) {
	t.Parallel()
	text, _ := adoptedSpec(t)
	spec, _ := specOfJSON(t, text)
	lost := patch.Apply(spec, patch.Remove(spec))
	if got := patch.PlaceOf(lost, systemd.DropInPath("kubelet")); got != patch.Nowhere {
		t.Errorf("got %d, want %d", got, patch.Nowhere)
	}
}
