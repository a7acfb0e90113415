package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// TestDecide_ConfiguresOnlyTrustWithoutAProxy covers all rooms: each gets the settings in its own way.
func TestDecide_ConfiguresOnlyTrustWithoutAProxy(t *testing.T) {
	t.Parallel()
	proxy, err := settings.ParseSecret(map[string][]byte{"trustedCA": []byte(pki.Text(t))})
	if err != nil {
		t.Fatal(err)
	}
	var (
		certificates is = func(s *scene) {
			s.answers.values.Resolution = &settings.Resolution{Settings: proxy, Complete: true, Files: filesOf(proxy)}
		}
		proxied is = func(s *scene) { s.answers.values = newScene(t, controlPlane).answers.values }
		unseen  is = func(s *scene) { s.answers.values.Resolution = &settings.Resolution{} }
		says       = func(now is) is {
			return func(s *scene) {
				now(s)
				s.answers.values.Resolution = &settings.Resolution{Files: s.answers.values.Resolution.Files}
			}
		}
		hooked  is = func(s *scene) { s.object.Hooked = true }
		noTrust is = func(s *scene) { s.want.Options.Targets = []contract.Target{contract.TargetKubelet} }
		trust      = "/etc/capi-proxy-patcher/setup.sh /etc/capi-proxy-patcher/trusted-ca.pem"
		all        = "/etc/capi-proxy-patcher/proxy.env " + trust +
			" /etc/systemd/system/containerd.service.d/http-proxy.conf /etc/systemd/system/kubelet.service.d/http-proxy.conf"
		commands = "prepare"
		everyone = "prepare export unset"
	)
	for name, test := range map[string]struct {
		is             []is
		files, command string
	}{
		"the controller and render":                        {[]is{certificates}, trust, commands},
		"of what had a proxy":                              {[]is{patched, certificates}, trust, commands},
		"when a URL is added":                              {[]is{certificates, patched, proxied}, all, everyone},
		"admission of what the generated Secret says":      {[]is{says(certificates), created}, trust, commands},
		"admission of what it says no more":                {[]is{certificates, patched, says(proxied), updated}, all, everyone},
		"admission before there is one":                    {[]is{unseen, created}, all, everyone},
		"admission when the cache has lost it":             {[]is{certificates, patched, unseen, applied}, trust, commands},
		"while the proxy Secret is gone":                   {[]is{certificates, patched, rejected}, trust, commands},
		"the topology hook, whose answer is a constant":    {[]is{certificates, hooked}, all, everyone},
		"a choice of targets that leaves out certificates": {[]is{certificates, noTrust}, "", ""},
		"the same for a topology":                          {[]is{certificates, noTrust, hooked}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, controlPlane)
			for _, change := range test.is {
				change(&s)
			}
			d, err := plan.Decide(s.object, s.want, &s.answers)
			if err != nil {
				t.Fatal(err)
			}
			if test.files == "" {
				if d.Refused == nil ||
					!strings.Contains(d.Refused.Error(),
						"annotation capi-proxy-patcher.io/targets of the Cluster leaves out target trust; add that target") || len(d.Edits) > 0 {
					t.Errorf("refused %v, edits %v", d.Refused, d.Edits)
				}
				return
			}
			files, commands := managed(patch.Apply(s.object.Spec, d.Edits))
			if files != test.files || commands != test.command {
				t.Errorf("files %s\ncommands %s (%v)", files, commands, d.Refused)
			}
		})
	}
}

// managed names the managed files and commands of a spec.
func managed(spec patch.Spec) (files, commands string) {
	var paths, does []string
	for _, f := range spec.Files {
		if patch.IsManagedFile(f) {
			paths = append(paths, f.Path)
		}
	}
	for _, command := range spec.PreKubeadmCommands {
		for begin, name := range map[string]string{"sh " + contract.PathSetup: "prepare", "{ set -a": "export", `eval "$(env`: "unset"} {
			if strings.HasPrefix(command, begin) {
				does = append(does, name)
			}
		}
	}
	slices.Sort(paths)
	return strings.Join(paths, " "), strings.Join(does, " ")
}
