package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// provider has one machine template or pool, whatever is asked for.
type provider struct {
	client.Reader
	meta.RESTMapper

	spec  map[string]any
	reads int
}

func (*provider) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion("v1")}, nil
}

func (p *provider) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	p.reads++
	if p.spec["forbidden"] != nil {
		return errors.New("forbidden")
	}
	if object, ok := into.(*unstructured.Unstructured); ok {
		object.Object = map[string]any{"spec": p.spec}
	}
	return nil
}

// TestUserData_WarnsOfWhatCannotFit has objects as the cache keeps them, without the contents of files. A template is
// read only where it decides.
func TestUserData_WarnsOfWhatCannotFit(t *testing.T) {
	t.Parallel()
	recipe, err := plan.Recipe(settings.Options{Targets: contract.Targets()}, 0, false, "c-proxy-files")
	if err != nil {
		t.Fatal(err)
	}
	raw := map[string]any{"template": map[string]any{"spec": map[string]any{
		"cloudInit": map[string]any{"insecureSkipSecretsManager": true},
	}}}
	for name, test := range map[string]struct {
		cluster, template, pool string
		file                    int
		spec                    map[string]any
		want                    string
		reads                   int
	}{
		"a control plane that fits":                  {cluster: "HetznerCluster", file: 10_000},
		"one that does not":                          {cluster: "HetznerCluster", file: 20_000, want: "HetznerCluster takes 32768"},
		"no limit is known":                          {cluster: "VSphereCluster", file: 500_000},
		"a pool that fits":                           {cluster: "OCICluster", pool: "OCIMachineTemplate", file: 20_000},
		"a pool that does not":                       {cluster: "OCICluster", pool: "OCIMachineTemplate", file: 25_000, want: "OCICluster takes 24000"},
		"a launch template":                          {cluster: "AWSCluster", pool: "AWSMachinePool", file: 20_000, want: "AWSMachinePool takes 16384", reads: 1},
		"a small one":                                {cluster: "AWSCluster", pool: "AWSMachinePool", file: 5_000},
		"a launch template, data in S3":              {cluster: "AWSCluster", pool: "AWSMachinePool", file: 20_000, spec: map[string]any{"ignition": map[string]any{}}, reads: 1},
		"EC2, data in Secrets Manager":               {cluster: "AWSCluster", template: "AWSMachineTemplate", file: 5_000, reads: 1},
		"EC2, data as it is":                         {cluster: "AWSCluster", template: "AWSMachineTemplate", file: 5_000, spec: raw, want: "AWSMachineTemplate takes 16384", reads: 1},
		"a template that cannot be read":             {cluster: "AWSCluster", template: "AWSMachineTemplate", file: 5_000, spec: map[string]any{"forbidden": true}, reads: 1},
		"a pool with Machines, data as it is":        {cluster: "AWSCluster", pool: "AWSMachineTemplate", file: 20_000, spec: raw, want: "AWSMachineTemplate takes 16384", reads: 1},
		"a pool with Machines that need not be read": {cluster: "AWSCluster", pool: "AWSMachineTemplate", file: 5_000, spec: raw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &provider{spec: test.spec}
			c := &Controller{Config: Config{Memory: &world.Memory{Live: server, Mapper: server}}}
			p := c.newPass(&clusterv1.Cluster{}, settings.ClusterOf(&clusterv1.Cluster{Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: test.cluster, Name: "c"}}}))
			own := bootstrapv1.KubeadmConfigSpec{Files: []bootstrapv1.File{{Path: "/own", Content: strings.Repeat("x", test.file)}}}
			var object kinds.BootstrapObject
			kind := plan.KindControlPlane
			if test.pool != "" {
				kind = plan.KindTemplate
				template := &bootstrapv1.KubeadmConfigTemplate{}
				template.Spec.Template.Spec = own
				object = template
			} else {
				controlPlane := &controlplanev1.KubeadmControlPlane{Spec: controlplanev1.KubeadmControlPlaneSpec{KubeadmConfigSpec: own}}
				controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: test.template, Name: test.template}
				object = controlPlane
			}
			if _, err := kinds.Trim(object); err != nil {
				t.Fatal(err)
			}
			o := Reconciled{
				Object: NewObject(object, kind, false), Decision: plan.Decision{Recipe: &recipe},
			}
			if test.pool != "" {
				o.Pools = []plan.Pool{{Infrastructure: clusterv1.ContractVersionedObjectReference{Kind: test.pool, Name: "m"}}}
			}
			var out Outcome
			c.checkUserData(t.Context(), p, &o, &out)
			if got := fmt.Sprint(out.Findings); (len(out.Findings) > 0) != (test.want != "") || !strings.Contains(got, test.want) ||
				len(o.Decision.Warnings) != len(out.Findings) {
				t.Errorf("found %s", got)
			}
			if server.reads != test.reads {
				t.Errorf("%d reads", server.reads)
			}
		})
	}
}
