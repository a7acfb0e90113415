package slim

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kjson "sigs.k8s.io/json"
)

// dropUnread drops the metadata that nobody reads.
func dropUnread(m *metav1.ObjectMeta) {
	m.ManagedFields, m.GenerateName, m.DeletionGracePeriodSeconds = nil, "", nil
	m.SetSelfLink("")
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

// TestMetadata_IsDecodedLikeTheWhole compares what a decoder makes of rude JSON with what it makes of a whole object.
func TestMetadata_IsDecodedLikeTheWhole(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":           `{}`,
		"null":              `null`,
		"every field null":  `{"name":null,"namespace":null,"uid":null,"creationTimestamp":null,"deletionTimestamp":null,"labels":null,"annotations":null,"ownerReferences":null,"finalizers":null}`,
		"empty lists":       `{"labels":{},"annotations":{},"ownerReferences":[],"finalizers":[]}`,
		"rude strings":      `{"name":"%\"'\\$\u0060\n{{","namespace":"[::1]","labels":{"%":"\u00fc\n","":"$"},"annotations":{"a":"\u0000"},"finalizers":["","%s"]}`,
		"many":              `{"finalizers":[` + strings.Repeat(`"a",`, 4000) + `"b"]}`,
		"last applied":      `{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}`,
		"owners":            `{"ownerReferences":[{"kind":"Cluster","controller":true,"blockOwnerDeletion":false},{},{"name":"%","controller":false}]}`,
		"another case":      `{"Name":"a","Labels":{"a":"b"},"ownerReferences":[{"Kind":"a"}]}`,
		"unknown":           `{"name":"a","fromTheFuture":{"name":"b"},"managedFields":[{"manager":"m"}]}`,
		"dates":             `{"creationTimestamp":"1970-01-01T00:00:00Z","deletionTimestamp":"9999-12-31T23:59:59Z"}`,
		"another zone":      `{"creationTimestamp":"2026-01-01T02:00:00+02:00"}`,
		"no date":           `{"creationTimestamp":"yesterday"}`,
		"labels of numbers": `{"labels":{"a":1}}`,
		"one finalizer":     `{"finalizers":"a"}`,
		"one owner":         `{"ownerReferences":{}}`,
		"namespace":         `{"namespace":{}}`,
	} {
		text = `{"metadata":` + text + `}`
		kept, want, got := &Template{}, &bootstrapv1.KubeadmConfigTemplate{}, &bootstrapv1.KubeadmConfigTemplate{}
		wantErr := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), want)
		err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), kept)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: error %v, of the whole object %v", name, err, wantErr)
		}
		if kept.Keep(); err != nil {
			continue
		}
		dropUnread(&want.ObjectMeta)
		if kept.Into(got); !reflect.DeepEqual(want.ObjectMeta, got.ObjectMeta) {
			t.Errorf("%s (-want +got)\n%s", name, cmp.Diff(want.ObjectMeta, got.ObjectMeta))
		}
	}
}

// TestMetadata_HasWhatIsSet calls each setter of metav1.Object, with something and with nothing.
func TestMetadata_HasWhatIsSet(t *testing.T) {
	t.Parallel()
	full := &metav1.ObjectMeta{}
	fillAll(reflect.ValueOf(full).Elem())
	kept := &Template{}
	for _, from := range []*metav1.ObjectMeta{full, {}} {
		dropUnread(from)
		methods := reflect.ValueOf(kept)
		for method := range reflect.TypeFor[metav1.Object]().Methods() {
			field, isSetter := strings.CutPrefix(method.Name, "Set")
			if !isSetter {
				continue
			}
			want := reflect.ValueOf(from).MethodByName("Get" + field).Call(nil)
			methods.MethodByName("Set" + field).Call(want)
			got := methods.MethodByName("Get" + field).Call(nil)
			if !reflect.DeepEqual(want[0].Interface(), got[0].Interface()) {
				t.Errorf("%s is %v, want %v", field, got[0], want[0])
			}
		}
		got := &bootstrapv1.KubeadmConfigTemplate{}
		if kept.Into(got); !reflect.DeepEqual(*from, got.ObjectMeta) {
			t.Errorf("(-want +got)\n%s", cmp.Diff(*from, got.ObjectMeta))
		}
	}
}

// TestList_KeepsOrderAndLength compares lists around the length of a part.
func TestList_KeepsOrderAndLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 7, 8, 9, 16, 17, 4000} {
		all := make([]int, length)
		for i := range all {
			all[i] = i
		}
		l := listOf(all, same)
		if got := wholeOf(l, same); !reflect.DeepEqual(all, got) {
			t.Errorf("of %d: %v", length, got)
		}
		if l != listOf(all, same) || l == listOf(slices.Concat(all, []int{-1}), same) {
			t.Errorf("%d: equal lists are not the same, or others are", length)
		}
	}
	if got := wholeOf(listOf([]int(nil), same), same); got != nil {
		t.Errorf("no list is %v", got)
	}
}

// TestObjects_ShareWhatIsEqual compares what two Clusters keep whose templates differ in the Secret alone.
func TestObjects_ShareWhatIsEqual(t *testing.T) {
	t.Parallel()
	templates := make([]*Template, 2)
	for i, secret := range []string{"a-proxy-files", "b-proxy-files"} {
		whole := &bootstrapv1.KubeadmConfigTemplate{}
		whole.Spec.Template.Spec = rudeSpec()
		file := whole.Spec.Template.Spec.Files[2]
		file.ContentFrom.Secret.Name = secret
		whole.Spec.Template.Spec.Files = append(whole.Spec.Template.Spec.Files[:2], file, file)
		whole.Namespace, whole.Finalizers = "team", []string{"a"}
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		templates[i] = &Template{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, templates[i]); err != nil {
			t.Fatal(err)
		}
		templates[i].Keep()
	}
	a, b := templates[0], templates[1]
	if a.bootstrap.spec != b.bootstrap.spec || a.Namespace != b.Namespace || a.Finalizers != b.Finalizers {
		t.Errorf("what is equal is kept twice: %+v, %+v", a, b)
	}
	if !reflect.DeepEqual(a.bootstrap.secrets, []string{"a-proxy-files"}) {
		t.Errorf("one Secret is kept as %q", a.bootstrap.secrets)
	}
}
