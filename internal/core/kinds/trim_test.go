package kinds_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// gone is in every value that a cache drops.
const gone = "that no rule reads"

// TestCaches_KeepWhatRulesRead fills every field of an object, and has it as a cache of the manager does. What is not
// listed as dropped must be there, and rules must see the same.
func TestCaches_KeepWhatRulesRead(t *testing.T) {
	t.Parallel()
	options, err := world.CacheOptions("", "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		object     client.Object
		conditions []string // which are kept
	}{
		{&clusterv1.Cluster{}, []string{contract.ConditionProxyConfigured, "TopologyReconciled"}},
		{&clusterv1.ClusterClass{}, nil},
		{&clusterv1.Machine{}, nil},
		{&clusterv1.MachineDeployment{}, nil},
		{&clusterv1.MachinePool{}, nil},
		{&controlplanev1.KubeadmControlPlane{}, []string{"Paused"}},
		{&bootstrapv1.KubeadmConfigTemplate{}, nil},
		{&bootstrapv1.KubeadmConfig{}, []string{"DataSecretAvailable"}},
	} {
		for _, format := range []bootstrapv1.Format{bootstrapv1.CloudConfig, bootstrapv1.Ignition} {
			t.Run(fmt.Sprintf("%T/%s", test.object, format), func(t *testing.T) {
				t.Parallel()
				object := empty(test.object)
				fill(reflect.ValueOf(object).Elem(), "")
				complete(object, format, test.conditions)
				checkCached(t, object, options.DefaultTransform)
			})
		}
	}
	for object, by := range options.ByObject {
		if _, isSecret := object.(*corev1.Secret); by.Transform != nil && !isSecret {
			t.Errorf("%T has a transform of its own", object)
		}
	}
}

// TestTrim_KeepsThatThereAreAnnotations is about a patch that adds the first one: it would replace those that were
// dropped.
func TestTrim_KeepsThatThereAreAnnotations(t *testing.T) {
	t.Parallel()
	object := &clusterv1.Cluster{}
	object.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: gone})
	if _, err := kinds.Trim(object); err != nil || object.Annotations == nil || len(object.Annotations) != 0 {
		t.Errorf("annotations are %#v, %v", object.Annotations, err)
	}
}

// empty returns an empty object of the same kind.
func empty(of client.Object) client.Object {
	object, _ := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(of).Elem()))
	return object
}

// fill gives every field below v a value. A text is the path of its field; a list and a map have one entry.
func fill(v reflect.Value, path string) {
	switch into := v.Addr().Interface().(type) {
	case *metav1.Time:
		*into = metav1.Unix(1_700_000_000, 0)
		return
	case *metav1.FieldsV1:
		into.SetRawString(`{"f:` + gone + `": {}}`)
		return
	case *apiextensionsv1.JSON:
		into.Raw = []byte(`"` + path + `"`)
		return
	case *bootstrapv1.BootstrapTokenString:
		into.ID, into.Secret = "abcdef", "0123456789abcdef"
		return
	case *clusterv1.JSONSchemaProps: // it has itself
		into.Description = path
		return
	case *intstr.IntOrString:
		*into = intstr.FromString(path)
		return
	case *resource.Quantity:
		*into = resource.MustParse("1")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path+"[0]")
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path)
		fill(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint('x')
	default:
		v.SetInt(1)
	}
}

// complete adds values that decisions read, and others which they do not.
func complete(object client.Object, format bootstrapv1.Format, read []string) {
	object.GetAnnotations()[corev1.LastAppliedConfigAnnotation] = gone
	if o, ok := object.(interface{ SetConditions([]metav1.Condition) }); ok && read != nil {
		var list []metav1.Condition
		for _, of := range append(slices.Clone(read), gone) {
			var condition metav1.Condition
			fill(reflect.ValueOf(&condition).Elem(), "condition")
			condition.Type, condition.Status = of, metav1.ConditionTrue
			if _, ok := object.(*controlplanev1.KubeadmControlPlane); ok {
				condition.Message = gone
			}
			list = append(list, condition)
		}
		o.SetConditions(list)
	}
	if o, ok := object.(*clusterv1.Cluster); ok {
		for _, list := range variablesOf(o) {
			(*list)[0] = clusterv1.ClusterVariable{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(`{"secretName":"s"}`)}}
			*list = append(*list, clusterv1.ClusterVariable{Name: "other", Value: apiextensionsv1.JSON{Raw: []byte(`"` + gone + `"`)}})
		}
	}
	spec := kinds.SpecOf(object)
	if spec == nil {
		return
	}
	server := &spec.ClusterConfiguration.APIServer
	server.ExtraArgs = append(server.ExtraArgs, bootstrapv1.Arg{Name: "authentication-config", Value: new("/etc/kubernetes/auth.yaml")})
	spec.Format = format
	spec.Ignition.ContainerLinuxConfig.AdditionalConfig = "storage: {files: [{path: " + contract.PathProxyEnv + "}]}"
	spec.Files[0].Content = gone
	spec.Files = append(spec.Files,
		bootstrapv1.File{Path: "/etc/mine", Content: strings.Repeat(gone+" and: {{ more }}\n", 500)},
		bootstrapv1.File{Path: "/etc/data", Content: gone, Encoding: bootstrapv1.Base64},
		bootstrapv1.File{Path: contract.PathProxyEnv, Content: "theirs"},
		bootstrapv1.File{Path: "/etc/systemd/system/kubelet.service.d/a.conf", Content: "eA==", Encoding: bootstrapv1.Base64},
		bootstrapv1.File{Path: "/opt/x.sh", Content: "cp a /etc/systemd/system/kubelet.service.d/zz.conf"},
		bootstrapv1.File{Path: "/etc/containerd/certs.d/docker.io/hosts.toml", Content: `[host."https://m.example.com"]`},
		bootstrapv1.File{Path: "/etc/kubernetes/auth.yaml", Content: "kubeConfigFile: /etc/webhook.conf"},
		bootstrapv1.File{Path: "/etc/webhook.conf", Content: "server: https://w.example.com"},
	)
}

func variablesOf(o *clusterv1.Cluster) []*[]clusterv1.ClusterVariable {
	workers := &o.Spec.Topology.Workers
	return []*[]clusterv1.ClusterVariable{
		&o.Spec.Topology.Variables, &o.Spec.Topology.ControlPlane.Variables.Overrides,
		&workers.MachineDeployments[0].Variables.Overrides, &workers.MachinePools[0].Variables.Overrides,
	}
}

func checkCached(t *testing.T, sent client.Object, transform func(any) (any, error)) {
	t.Helper()
	var objects []client.Object         // as it is, and as a cache has it
	for _, times := range []int{0, 2} { // a transform may see what it made
		object := empty(sent)
		if err := kinds.Decode([]byte(encode(t, sent)), object); err != nil {
			t.Fatal(err)
		}
		if times == 0 {
			if diff := cmp.Diff(encode(t, sent), encode(t, object)); diff != "" {
				t.Fatalf("decoding loses fields (-want +got):\n%s", diff)
			}
		}
		for range times {
			if _, err := transform(object); err != nil {
				t.Fatal(err)
			}
		}
		objects = append(objects, object)
	}
	whole, cached := objects[0], objects[1]
	if diff := cmp.Diff(readBy(t, whole), readBy(t, cached)); diff != "" {
		t.Errorf("rules read (-want +got):\n%s", diff)
	}
	if text := encode(t, cached); strings.Contains(text, gone) || strings.Contains(text, "managedFields") {
		t.Errorf("a cache keeps what no rule reads: %s", text)
	}
	if diff := cmp.Diff(encode(t, drop(whole, cached)), encode(t, cached)); diff != "" {
		t.Errorf("a cache has (-want +got):\n%s", diff)
	}
}

// readBy is what rules read of an object by more than its fields.
func readBy(t *testing.T, object client.Object) any {
	t.Helper()
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets(), SecretName: "s"})
	if err != nil {
		t.Fatal(err)
	}
	read := struct {
		Pool         plan.Pool
		View         patch.Spec
		Hosts        []kinds.Host
		All, Ours    int
		ContentSizes []int
	}{Pool: plan.PoolOf(object), View: kinds.View(object)}
	read.Pool.Annotations = nil // compared with the object
	spec := kinds.SpecOf(object)
	if spec == nil {
		return read
	}
	read.All, read.Ours = patch.UserData(read.View, recipe, nil, true)
	for i, f := range read.View.Files {
		read.ContentSizes = append(read.ContentSizes, patch.FileSize(read.View.Format, f))
		if !patch.ReadsContent(f) {
			read.View.Files[i].Content = ""
		}
	}
	if read.Hosts = kinds.Hosts(spec); !slices.ContainsFunc(read.Hosts, func(h kinds.Host) bool { return h.URL == "https://m.example.com" }) ||
		!slices.ContainsFunc(read.Hosts, func(h kinds.Host) bool { return h.URL == "https://w.example.com" }) {
		t.Errorf("hosts are %+v", read.Hosts)
	}
	return read
}

// drop removes the values that a cache drops. Contents become those of cached, which have the size of the others.
func drop(object, cached client.Object) client.Object {
	object.SetManagedFields(nil)
	delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	if o, ok := object.(interface {
		GetConditions() []metav1.Condition
		SetConditions([]metav1.Condition)
	}); ok {
		kept := slices.DeleteFunc(o.GetConditions(), func(c metav1.Condition) bool { return c.Type == gone })
		for i := range kept {
			kept[i].Message = strings.TrimPrefix(kept[i].Message, gone)
		}
		o.SetConditions(kept)
	}
	if o, ok := object.(*clusterv1.Cluster); ok {
		for _, list := range variablesOf(o) {
			(*list)[1].Value.Raw = nil
		}
	}
	if spec := kinds.SpecOf(object); spec != nil {
		for i := range spec.Files {
			if strings.Contains(spec.Files[i].Content, gone) {
				spec.Files[i].Content = kinds.SpecOf(cached).Files[i].Content
			}
		}
	}
	return object
}

func encode(t *testing.T, object client.Object) string {
	t.Helper()
	text, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
