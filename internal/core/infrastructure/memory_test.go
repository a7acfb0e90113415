package infrastructure_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
)

func TestMemory_OutlivesAProcess(t *testing.T) {
	t.Parallel()
	objects := tellings()
	objects["with ignored values"] = told{kind: "AWSCluster", object: "spec: {region: 7, network: {vpc: {cidrBlock: 10.0.0.0/16}, subnets: 1}}"}
	for name, test := range objects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := infrastructure.Memory{
				Group: "infrastructure.cluster.x-k8s.io", Kind: test.kind, Name: "prod", Provisioned: true,
				Facts: read(t, test.kind, test.object),
			}
			text, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, found := infrastructure.Decode(text)
			if !found {
				t.Fatalf("cannot read %s", text)
			}
			if diff := cmp.Diff(m, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", text, diff)
			}
		})
	}
	for _, text := range []string{"", "null x", "[]", `{"entries":{}}`} {
		if _, found := infrastructure.Decode([]byte(text)); found {
			t.Errorf("%q is read", text)
		}
	}
}
