package plan_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

func TestCarries_IgnoresTheOrder(t *testing.T) {
	t.Parallel()
	recipe := func(targets ...contract.Target) patch.Recipe {
		r, err := patch.NewRecipe(patch.Options{
			Targets:    targets,
			SecretName: "one-proxy-files",
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := recipe(contract.Targets()...)
	spec := func(r patch.Recipe, change func(*patch.Spec)) patch.Spec {
		own := patch.Spec{
			Files:              []patch.File{{Path: "/etc/motd", Content: "%n\"'`$(id){{ x }}"}},
			PreKubeadmCommands: []string{"echo own"}, PostKubeadmCommands: []string{"echo done"},
		}
		brought, err := patch.Ensure(own, r)
		if err != nil {
			t.Fatal(err)
		}
		s := patch.Apply(own, brought.Edits)
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		spec patch.Spec
		want bool
	}{
		"as it was made":                       {spec(all, func(*patch.Spec) {}), true},
		"with a command of a later patch":      {spec(all, func(s *patch.Spec) { s.PreKubeadmCommands = append([]string{"echo later"}, s.PreKubeadmCommands...) }), true},
		"with a file of a later patch":         {spec(all, func(s *patch.Spec) { s.Files = append([]patch.File{{Path: "/a"}}, s.Files...) }), true},
		"with other commands after kubeadm":    {spec(all, func(s *patch.Spec) { s.PostKubeadmCommands = nil }), true},
		"for more targets":                     {spec(recipe(contract.TargetKubelet), func(*patch.Spec) {}), false},
		"without a file":                       {spec(all, func(s *patch.Spec) { s.Files = s.Files[:len(s.Files)-1] }), false},
		"with a file of another mode":          {spec(all, func(s *patch.Spec) { s.Files[1].Permissions = "0777" }), false},
		"with a file of another Secret":        {spec(all, func(s *patch.Spec) { s.Files[1].ContentFrom.Name = "two-proxy-files" }), false},
		"without the first of its commands":    {spec(all, func(s *patch.Spec) { s.PreKubeadmCommands = s.PreKubeadmCommands[1:] }), false},
		"without the last of its commands":     {spec(all, func(s *patch.Spec) { s.PreKubeadmCommands = s.PreKubeadmCommands[:len(s.PreKubeadmCommands)-1] }), false},
		"the user's entries and nothing else":  {patch.Spec{PreKubeadmCommands: []string{"echo own"}}, false},
		"a command that only begins like ours": {spec(all, func(s *patch.Spec) { s.PreKubeadmCommands[0] += " " }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.Carries(test.spec, all); got != test.want {
				t.Errorf("Carries is %v, want %v", got, test.want)
			}
		})
	}
	if !plan.Carries(patch.Spec{}, patch.Recipe{}) {
		t.Error("a spec does not carry the empty recipe")
	}
}
