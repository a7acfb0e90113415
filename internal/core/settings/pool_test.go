package settings_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// parts are pieces of names that look like the names that are made of them.
func parts() []string {
	parts := []string{
		"a", "a-b", "b", "md", "mp", "tmd", "mph", "md1", "md2", "mp1", "proxy-files", "a-proxy-files", "a--b", "0", strings.Repeat("a", 63),
	}
	joined := parts
	for _, a := range parts[:12] {
		for _, b := range parts[:12] {
			joined = append(joined, a+"."+b, a+"-"+b)
		}
	}
	return append(joined, "a.md.b", "a.b.md", "a.b.md1", "a.b.c.md2", "a.b.md1.b", "a.md.b.md")
}

func TestGeneratedSecretNames_NeverCollide(t *testing.T) {
	t.Parallel()
	type owner struct {
		cluster string
		pool    settings.Pool
	}
	owners := map[string]owner{}
	add := func(name string, o owner) {
		if other, taken := owners[name]; taken && other != o {
			t.Fatalf("%q is the name of %+v and of %+v", name, o, other)
		}
		owners[name] = o
		if got := settings.GeneratedFor(name); got != o.cluster {
			t.Errorf("GeneratedFor(%q) = %q, want %q", name, got, o.cluster)
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q: %s", name, problems)
		}
	}
	names := parts()
	pools := append(parts(), strings.Repeat("a", 101), strings.Repeat("b.", 126)+"b")
	for _, cluster := range names {
		if len(validation.IsValidLabelValue(cluster)) > 0 {
			continue // Cluster API does not admit it
		}
		add(settings.GeneratedSecretName(cluster), owner{cluster: cluster})
		for _, pool := range pools {
			for _, kind := range []string{"MachineDeployment", "MachinePool"} {
				for _, topology := range []bool{false, true} {
					p := settings.Pool{Kind: kind, Name: pool, Topology: topology, Override: "other"}
					add(p.GeneratedSecret(cluster), owner{cluster, p})
				}
			}
		}
	}
	if len(owners) < 50_000 {
		t.Errorf("only %d names were made", len(owners))
	}
}

func TestGeneratedFor_KnowsNoOtherNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "proxy-files", ".proxy-files", "a.proxy-files", "a.md.proxy-files", "a.b.md1.proxy-files", "a.b.md0.proxy-files", "a.b.md-1.proxy-files",
		"a.b.x.proxy-files", "a.b.tt.proxy-files", "a.b.md99999999999999999999.proxy-files", "http-proxy", "a-kubeconfig",
	} {
		if got := settings.GeneratedFor(name); got != "" {
			t.Errorf("GeneratedFor(%q) = %q, want none", name, got)
		}
	}
	if got := settings.GeneratedFor("${A}.${B}.tmd.proxy-files"); got != "${A}" {
		t.Errorf("names with variables are those of %q", got)
	}
}

func TestPool_GeneratedSecret(t *testing.T) {
	t.Parallel()
	for want, pool := range map[string]settings.Pool{
		"one-proxy-files":          {Name: "md-0", Topology: true},
		"one.md-0.tmd.proxy-files": {Kind: settings.KindMachineDeployment, Name: "md-0", Topology: true, Override: "other"},
		"one.md-0.tmp.proxy-files": {Kind: settings.KindMachinePool, Name: "md-0", Topology: true, Override: "other"},
	} {
		if got := pool.GeneratedSecret("one"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
