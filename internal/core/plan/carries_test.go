package plan_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestCarries_IgnoresTheOrder(t *testing.T) {
	t.Parallel()
	spec := func(change func(*patch.Spec)) patch.Spec {
		s := ensured(t, own())
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		spec patch.Spec
		want bool
	}{
		"as it was made":                       {ensured(t, own()), true},
		"with a command of a later patch":      {spec(func(s *patch.Spec) { s.PreKubeadmCommands = append([]string{"echo later"}, s.PreKubeadmCommands...) }), true},
		"with a file of a later patch":         {spec(func(s *patch.Spec) { s.Files = append([]patch.File{{Path: "/a"}}, s.Files...) }), true},
		"with other commands after kubeadm":    {spec(func(s *patch.Spec) { s.PostKubeadmCommands = nil }), true},
		"for more targets":                     {ensured(t, own(), contract.TargetKubelet), false},
		"without a file":                       {spec(func(s *patch.Spec) { s.Files = s.Files[:len(s.Files)-1] }), false},
		"with a file of another mode":          {spec(func(s *patch.Spec) { s.Files[1].Permissions = "0777" }), false},
		"with a file of another Secret":        {spec(func(s *patch.Spec) { s.Files[1].ContentFrom.Name = "two-proxy-files" }), false},
		"without the first of its commands":    {spec(func(s *patch.Spec) { s.PreKubeadmCommands = s.PreKubeadmCommands[1:] }), false},
		"without the last of its commands":     {spec(func(s *patch.Spec) { s.PreKubeadmCommands = s.PreKubeadmCommands[:len(s.PreKubeadmCommands)-1] }), false},
		"the user's entries and nothing else":  {patch.Spec{PreKubeadmCommands: []string{"echo own"}}, false},
		"a command that only begins like ours": {spec(func(s *patch.Spec) { s.PreKubeadmCommands[0] += " " }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.Carries(test.spec, reference(t)); got != test.want {
				t.Errorf("Carries is %v, want %v", got, test.want)
			}
		})
	}
	if !plan.Carries(patch.Spec{}, patch.Recipe{}) {
		t.Error("a spec does not carry the empty recipe")
	}
}
