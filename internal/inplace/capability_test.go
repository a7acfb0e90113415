package inplace

import (
	"testing"

	cliflag "k8s.io/component-base/cli/flag"
)

func TestFlags_OfThePullPolicy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"--node-image", "a", "--node-image-pull-policy", "IfNotPresent"}, ""},
		{[]string{"--node-image-pull-policy", "Never"}, `--node-image-pull-policy "Never": neither Always nor IfNotPresent`},
		{[]string{"--node-image-pull-policy", ""}, `--node-image-pull-policy "": neither Always nor IfNotPresent`},
	} {
		capability, groups := &Capability{}, cliflag.NamedFlagSets{}
		capability.AddFlags(&groups)
		if err := groups.FlagSet("clusters").Parse(test.args); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := capability.Check(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: %s, want %s", test.args, got, test.want)
		}
	}
}
