package backoff_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// apiServer gives each write a version of its own, and counts them. With same, a write changes nothing.
type apiServer struct {
	client.Client

	version, writes int
	same            bool
	managers        []metav1.ManagedFieldsEntry
}

func (s *apiServer) write(object client.Object) error {
	s.writes++
	if !s.same {
		s.version++
	}
	object.SetResourceVersion(strconv.Itoa(s.version))
	return nil
}

func (s *apiServer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return s.write(o)
}

func (s *apiServer) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.write(o)
}

func (s *apiServer) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return s.write(o)
}

func (s *apiServer) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	s.writes++
	return nil
}

func (s *apiServer) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetManagedFields(s.managers)
	return nil
}

func (s *apiServer) Status() client.SubResourceWriter { return status{api: s} }

type status struct {
	client.SubResourceWriter

	api *apiServer
}

func (s status) Apply(_ context.Context, configuration runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &applied.Object); err != nil {
		return err
	}
	if version := applied.GetResourceVersion(); version != "" {
		return unexpectedError("a precondition: version " + version)
	}
	return s.api.write(applied)
}

type unexpectedError string

func (e unexpectedError) Error() string { return string(e) }

func (*apiServer) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	if _, secret := object.(*corev1.Secret); secret {
		return corev1.SchemeGroupVersion.WithKind("Secret"), nil
	}
	return schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"}, nil
}

var cluster = types.NamespacedName{Namespace: "team", Name: "one"}

// fight is a Client, its API server and its clock.
type fight struct {
	*backoff.Client

	api *apiServer
	now time.Time
	ctx context.Context //nolint:containedctx // that of one test
}

func newFight(t *testing.T) *fight {
	t.Helper()
	f := &fight{api: &apiServer{version: 10}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	f.Client = backoff.New(f.api, f.api, func() time.Time { return f.now })
	f.ctx = f.ForCluster(t.Context(), labelled("true"))
	return f
}

// labelled is the Cluster with a value of the label.
func labelled(value string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: cluster.Name, Labels: map[string]string{contract.LabelEnabled: value},
	}}
}

// sent counts the requests of a write that is asked for n times, in turn with those of a rival, each after a while.
func (f *fight) sent(t *testing.T, n int, after time.Duration, write func(client.Client) error) int {
	t.Helper()
	before := f.api.writes
	for range n {
		f.now = f.now.Add(after)
		if err := write(f.Client); err != nil {
			t.Fatal(err)
		}
		f.api.version++ // the rival
	}
	return f.api.writes - before
}

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, ResourceVersion: version}}
}

func secret(values map[string]string) *corev1.Secret {
	data := map[string][]byte{}
	for key, value := range values {
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one"}, Data: data}
}

// TestClient_RepeatsAContestedWriteOnceAMinute has each way of writing reverted every second for five minutes.
func TestClient_RepeatsAContestedWriteOnceAMinute(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(f *fight, i int) error{
		"JSON patch": func(f *fight, i int) error {
			return f.Patch(f.ctx, object("one", "1"), client.RawPatch(types.JSONPatchType, []byte(
				`[{"op":"replace","path":"/metadata/resourceVersion","value":"`+strconv.Itoa(i)+`"},{"op":"add","path":"/spec/files","value":[]}]`)))
		},
		"merge patch": func(f *fight, _ int) error {
			return f.Patch(f.ctx, object("one", ""), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"uid":"1","annotations":{"a":"b"}}}`)))
		},
		"create": func(f *fight, _ int) error { return f.Create(f.ctx, secret(map[string]string{"a": "b"})) },
		"update": func(f *fight, i int) error {
			s := secret(map[string]string{"a": "b"})
			s.ResourceVersion, s.Annotations = strconv.Itoa(i), map[string]string{contract.AnnotationChangedAt: f.now.Format(time.RFC3339)}
			return f.Update(f.ctx, s)
		},
		"delete": func(f *fight, _ int) error { return f.Delete(f.ctx, secret(nil)) },
		"condition": func(f *fight, i int) error {
			applied := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Cluster", "metadata": map[string]any{"name": "one", "resourceVersion": strconv.Itoa(1000 + i)},
				"status": map[string]any{"conditions": []any{map[string]any{"type": "A", "lastTransitionTime": f.now.Format(time.RFC3339)}}},
			}}
			return f.Status().Apply(f.ctx, client.ApplyConfigurationFromUnstructured(applied))
		},
		"label of a Node": func(f *fight, _ int) error {
			return f.Remote(f.api, cluster).Patch(f.ctx, object("node", ""), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFight(t)
			i := 0
			got := f.sent(t, 300, time.Second, func(client.Client) error {
				i++
				return write(f, i)
			})
			if got < 6 || got > 8 { // three, and one a minute
				t.Errorf("%d requests in five minutes", got)
			}
			found, again := f.Contested(cluster)
			if len(found) != 1 || found[0].Reason != contract.ReasonContested || again <= 0 || again > time.Minute {
				t.Errorf("findings %v, again in %s", found, again)
			}
			if f.now = f.now.Add(time.Minute); len(first(f.Contested(cluster))) != 0 {
				t.Error("contested although nothing had to be written for a minute")
			}
		})
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestClient_SendsWhatIsNoContest counts the requests of ten writes, one a second unless it says otherwise.
func TestClient_SendsWhatIsNoContest(t *testing.T) {
	t.Parallel()
	annotate := func(name, text string) func(f *fight) error {
		return func(f *fight) error {
			return f.Patch(f.ctx, object(name, ""), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{`+text+`}}}`)))
		}
	}
	for name, row := range map[string]struct {
		after time.Duration
		write func(f *fight) error
	}{
		"two writes a minute": {30 * time.Second, annotate("one", `"a":"b"`)},
		"two conditions in turn": {time.Second, func(f *fight) error {
			return f.Status().Apply(f.ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Cluster", "metadata": map[string]any{"name": "one", "resourceVersion": "1000"},
				"status": map[string]any{"conditions": []any{map[string]any{"type": "A", "reason": strconv.Itoa(f.api.writes % 2)}}},
			}}))
		}},
		"a rollout every minute": {time.Minute, func(f *fight) error {
			return f.Patch(f.ctx, object("one", ""), client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"rollout":{"after":"`+f.now.Format(time.RFC3339)+`"}}}`)))
		}},
	} {
		f := newFight(t)
		if got := f.sent(t, 10, row.after, func(client.Client) error { return row.write(f) }); got != 10 {
			t.Errorf("%s: %d requests, want 10", name, got)
		}
		if found, _ := f.Contested(cluster); len(found) != 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	t.Run("a label that is set and removed", func(t *testing.T) {
		t.Parallel()
		f := newFight(t)
		for i := range 10 {
			f.now = f.now.Add(time.Second)
			ctx := f.ForCluster(t.Context(), labelled(strconv.FormatBool(i%2 == 0)))
			write := f.Client.Create
			if i%2 == 1 {
				write = func(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
					return f.Client.Delete(ctx, o)
				}
			}
			if err := write(ctx, secret(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if found, _ := f.Contested(cluster); f.api.writes != 10 || len(found) != 0 {
			t.Errorf("%d requests, %v", f.api.writes, found)
		}
	})
	t.Run("writes that change nothing", func(t *testing.T) {
		t.Parallel()
		f := newFight(t)
		f.api.same = true
		for range 10 {
			if err := f.Update(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: "10"}}); err != nil {
				t.Fatal(err)
			}
		}
		if found, _ := f.Contested(cluster); f.api.writes != 10 || len(found) != 0 {
			t.Errorf("%d requests, %v", f.api.writes, found)
		}
	})
}

// TestClient_SkipsAWriteThatTheCacheDoesNotShowYet has no precondition: the API server would accept it.
func TestClient_SkipsAWriteThatTheCacheDoesNotShowYet(t *testing.T) {
	t.Parallel()
	f := newFight(t)
	write := func(version, value string) int {
		t.Helper()
		before := f.api.writes
		if err := f.Patch(f.ctx, object("one", version), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+value+`"}}}`))); err != nil {
			t.Fatal(err)
		}
		return f.api.writes - before
	}
	for i, step := range []struct {
		version, value string
		want           int
	}{{"9", "b", 1}, {"9", "b", 0}, {"10", "b", 0}, {"9", "c", 1}, {"9", "c", 0}, {"20", "c", 1}} {
		if got := write(step.version, step.value); got != step.want {
			t.Errorf("step %d: %d requests, want %d", i, got, step.want)
		}
	}
	if found, _ := f.Contested(cluster); len(found) != 0 {
		t.Errorf("contested: %v", found)
	}
}

func TestIsBehind_KnowsTheVersionThatWasWritten(t *testing.T) {
	t.Parallel()
	f := newFight(t)
	if err := f.Patch(f.ctx, object("one", "10"), client.RawPatch(types.JSONPatchType, []byte(`[]`))); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"10": true, "11": false, "12": false, "": false, "x": false} {
		if got := f.IsBehind(object("one", version)); got != want {
			t.Errorf("version %q is behind: %t, want %t", version, got, want)
		}
	}
	if f.IsBehind(object("two", "9")) {
		t.Error("an object that was never written is behind")
	}
}

func TestContested_NamesTheRival(t *testing.T) {
	t.Parallel()
	entry := func(manager, subresource string, second int64) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &metav1.Time{Time: time.Unix(second, 0)}}
	}
	f := newFight(t)
	f.api.managers = []metav1.ManagedFieldsEntry{
		entry("older", "", 1), entry(contract.Name, "", 3), entry("stubborn-operator", "", 3), entry(contract.Name+"-outputs", "", 2),
		entry("writer-of-conditions", "status", 4),
		{Manager: "of no time"},
	}
	f.sent(t, 10, time.Second, func(client.Client) error {
		return f.Patch(f.ctx, object("one", ""), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/files/0","value":{}}]`)))
	})
	f.sent(t, 10, time.Second, func(client.Client) error {
		return f.Status().Apply(f.ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Cluster", "metadata": map[string]any{"name": "status", "namespace": "team", "resourceVersion": "1000"}, "status": map[string]any{},
		}}))
	})
	f.api.managers = append(f.api.managers, entry(contract.Name, "", 5)) // who has emptied an object is not recorded
	f.sent(t, 10, time.Second, func(client.Client) error { return f.Create(f.ctx, secret(nil)) })
	// The manager of an object of the management cluster with the same name is not the rival.
	workload := f.Remote(f.api, cluster)
	f.sent(t, 10, time.Second, func(client.Client) error {
		return workload.Patch(f.ctx, object("remote", ""), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/files/0","value":{}}]`)))
	})
	found, _ := f.Contested(cluster)
	var got []string
	for _, one := range found {
		got = append(got, one.Message)
	}
	const want = "KubeadmConfig team/one: another manager, stubborn-operator, keeps reverting our changes, which are repeated once a minute; " +
		"enable the webhooks, or keep it from managing files and commands\n" +
		"KubeadmConfig team/remote: another manager keeps reverting our changes, which are repeated once a minute; " +
		"enable the webhooks, or keep it from managing files and commands\n" +
		"KubeadmConfig team/status: another manager, writer-of-conditions, keeps reverting our changes, which are repeated once a minute; " +
		"enable the webhooks, or keep it from managing files and commands\n" +
		"Secret team/one: another manager keeps reverting our changes, which are repeated once a minute; " +
		"keep it from managing this Secret, which is generated"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	other := types.NamespacedName{Namespace: "team", Name: "two"}
	if found, _ := f.Contested(other); len(found) > 0 {
		t.Errorf("another Cluster has %v", found)
	}
}
