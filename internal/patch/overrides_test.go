package patch_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// warned returns the places and messages of the warnings about spec, the same whether our entries are in it or not.
func warned(t *testing.T, spec patch.Spec, targets ...contract.Target) []string {
	t.Helper()
	r := recipe(t, patch.Options{Targets: targets})
	var first []string
	for round := range 2 {
		plan, err := patch.Ensure(spec, r)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range plan.Warnings {
			message, _, _ := strings.Cut(w.Message, ": services or commands may")
			if w.Code == patch.CodeUnread {
				message = "note: " + message
			}
			got = append(got, w.Place.String()+" "+message)
			if w.Advice == "" || strings.Contains(w.String(), "secret") {
				t.Errorf("%s", w)
			}
		}
		if round == 0 {
			first, spec = got, patch.Apply(spec, plan.Edits)
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("with our entries (-without +with):\n%s", diff)
		}
	}
	return first
}

const etc = "/etc/systemd/system/containerd.service.d/"

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestEnsure_WarnsOfFilesThatDecideAboutVariables(t *testing.T) {
	t.Parallel()
	const unset, read = "[Service]\nUnsetEnvironment=HTTP_PROXY\n", "[Service]\nEnvironmentFile=/etc/environment\n"
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, test := range map[string]struct {
		file patch.File
		want string // after the place and the path
	}{
		"a reset":                         {patch.File{Path: etc + "zz.conf", Content: "[Service]\nEnvironmentFile=\n"}, "resets EnvironmentFile= after http-proxy.conf"},
		"a reset of variables alone":      {patch.File{Path: etc + "zz.conf", Content: "[Service]\nEnvironment=\n"}, ""},
		"variables, which never win":      {patch.File{Path: etc + "override.conf", Content: "[Service]\nEnvironment=\"HTTPS_PROXY=http://a:secret@c\" A=b no_proxy=x\n"}, ""},
		"those of the manager":            {patch.File{Path: etc + "zz.conf", Content: "[Service]\nPassEnvironment=HTTP_PROXY\n"}, ""},
		"no values":                       {patch.File{Path: etc + "zz.conf", Content: "# x\n[Service]\nUnsetEnvironment=NO_PROXY \\\n HTTP_PROXY=x\n"}, "unsets NO_PROXY, unsets HTTP_PROXY"},
		"no values, whatever the order":   {patch.File{Path: etc + "10-a.conf", Content: unset}, "unsets HTTP_PROXY"},
		"no values of others":             {patch.File{Path: etc + "10-a.conf", Content: "[Service]\nUnsetEnvironment=LANG\n"}, ""},
		"the environment of everybody":    {patch.File{Path: etc + "zz.conf", Content: read}, "reads variables from /etc/environment after http-proxy.conf"},
		"a file of kubelet":               {patch.File{Path: "/etc/systemd/system/kubelet.service.d/kubelet.conf", Content: "[Service]\nEnvironmentFile=-/etc/default/kubelet\n"}, "reads variables from /etc/default/kubelet after http-proxy.conf"},
		"files of ours":                   {patch.File{Path: etc + "zz.conf", Content: "[Service]\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\nEnvironmentFile=-/etc/capi-proxy-patcher/node.env\n"}, ""},
		"kubeadm's own":                   {patch.File{Path: "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", Content: "[Service]\nEnvironmentFile=-/etc/default/kubelet\n"}, ""},
		"of this boot":                    {patch.File{Path: "/run/systemd/system/kubelet.service.d/i.conf", Content: read}, "reads variables from /etc/environment after http-proxy.conf"},
		"for all services":                {patch.File{Path: "/usr/lib/systemd/system/service.d/i.conf", Content: read}, "reads variables from /etc/environment after http-proxy.conf"},
		"hidden by ours":                  {patch.File{Path: "/etc/systemd/system/service.d/http-proxy.conf", Content: read}, ""},
		"by another way to the folder":    {patch.File{Path: "/etc//systemd/system/x/../kubelet.service.d/i.conf", Content: read}, "reads variables from /etc/environment after http-proxy.conf"},
		"before ours":                     {patch.File{Path: etc + "10-proxy.conf", Content: "[Service]\nEnvironmentFile=\n"}, ""},
		"capital letters are before ours": {patch.File{Path: etc + "ZZ.conf", Content: read}, ""},
		"of another unit":                 {patch.File{Path: "/etc/systemd/system/docker.service.d/zz.conf", Content: read}, ""},
		"no drop-in":                      {patch.File{Path: etc + "zz.txt", Content: read}, ""},
		"another section":                 {patch.File{Path: etc + "zz.conf", Content: "[Unit]\nEnvironmentFile=\n"}, ""},
		"in base64":                       {patch.File{Path: etc + "zz.conf", Content: encode(read), Encoding: "base64", Other: true}, "reads variables from /etc/environment after http-proxy.conf"},
		"in base64 with lines":            {patch.File{Path: etc + "zz.conf", Content: encode(read)[:20] + "\n" + encode(read)[20:] + "\n", Encoding: "base64", Other: true}, "reads variables from /etc/environment after http-proxy.conf"},
		"harmless in base64":              {patch.File{Path: etc + "zz.conf", Content: encode("[Service]\nLimitNOFILE=5\n"), Encoding: "base64", Other: true}, ""},
		"in gzip":                         {patch.File{Path: etc + "zz.conf", Content: zipped(unset), Encoding: "gzip", Other: true}, "unsets HTTP_PROXY"},
		"in gzip and base64":              {patch.File{Path: etc + "zz.conf", Content: encode(zipped(read)), Encoding: "gzip+base64", Other: true}, "reads variables from /etc/environment after http-proxy.conf"},
		"a bomb":                          {patch.File{Path: "/opt/x", Content: encode(zipped(strings.Repeat("a", 1<<22) + etc)), Encoding: "gzip+base64", Other: true}, ""},
		"appended":                        {patch.File{Path: etc + "zz.conf", Content: read, Other: true}, "reads variables from /etc/environment after http-proxy.conf"},
		"of another Secret":               {patch.File{Path: etc + "zz.conf", ContentFrom: patch.SecretKey{Name: "a", Key: "b"}}, "note: comes after http-proxy.conf and cannot be read here"},
		"of another Secret, before ours":  {patch.File{Path: etc + "a.conf", ContentFrom: patch.SecretKey{Name: "a", Key: "b"}}, ""},
		"of another Secret, no drop-in":   {patch.File{Path: "/opt/x.sh", ContentFrom: patch.SecretKey{Name: "a", Key: "b"}}, ""},
		"not what it says":                {patch.File{Path: etc + "zz.conf", Content: "${X}", Encoding: "gzip+base64", Other: true}, "note: comes after http-proxy.conf and cannot be read here"},
		"no unit":                         {patch.File{Path: etc + "zz.conf", Content: "[Service\nEnvironmentFile=\x00\\"}, "note: comes after http-proxy.conf and cannot be read here"},
		"a script":                        {patch.File{Path: "/opt/x.sh", Content: "#!/bin/sh\ncat x > " + etc + "http-proxy.conf\n"}, "names containerd.service.d/http-proxy.conf"},
		"an encoded script":               {patch.File{Path: "/opt/x.sh", Content: encode(zipped("cp a " + etc + "zz.conf")), Encoding: "gzip+base64", Other: true}, "names containerd.service.d/zz.conf"},
		"a unit that reads our file":      {patch.File{Path: "/etc/systemd/system/crio.service.d/http-proxy.conf", Content: "[Service]\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\n"}, ""},
		"a drop-in that writes ours":      {patch.File{Path: etc + "10-a.conf", Content: "[Service]\nExecStartPre=/bin/rm /etc/capi-proxy-patcher/proxy.env\n"}, "names /etc/capi-proxy-patcher/proxy.env"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			if message, note := strings.CutPrefix(test.want, "note: "); test.want != "" {
				want = []string{"files[1] " + map[bool]string{true: "note: "}[note] + test.file.Path + " " + message}
			}
			if diff := cmp.Diff(want, warned(t, patch.Spec{Files: []patch.File{{Path: "/a"}, test.file}}, contract.Targets()...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want != nil && !patch.ReadsContent(test.file) {
				t.Error("its content is not kept")
			}
			test.file.Path = strings.Replace(test.file.Path, "containerd", "kubelet", 1)
			if got := warned(t, patch.Spec{Files: []patch.File{test.file}}, contract.TargetTrust); strings.Contains(strings.Join(got, ""), "http-proxy.conf") {
				t.Errorf("without services: %q", got)
			}
		})
	}
}

func TestEnsure_WarnsOfCommandsThatDecideAboutVariables(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"cat <<EOF > " + etc + "http-proxy.conf\n[Service]\nEnvironment=HTTP_PROXY=http://a:secret@b\nEOF":                 "containerd.service.d/http-proxy.conf",
		"mkdir -p " + etc + " && printf '[Service]\\n' | tee " + etc + "proxy.conf":                                        "containerd.service.d/proxy.conf",
		"mkdir -p " + etc + "; cp /opt/a.conf " + etc:                                                                      "containerd.service.d/",
		"D=/etc/systemd/system/kubelet.service.d; mkdir -p $D; cp a $D/zz.conf":                                            "kubelet.service.d",
		"cd /etc/systemd/system; for s in containerd kubelet; do cp a $s.service.d/http-proxy.conf; done":                  "$s.service.d/http-proxy.conf",
		"for s in containerd kubelet; do cp a /etc/systemd/system/\"$s\".service.d/http-proxy.conf; done":                  ".service.d/http-proxy.conf",
		"tee /etc/systemd/system/{containerd,kubelet}.service.d/http-proxy.conf <<< x":                                     "kubelet}.service.d/http-proxy.conf",
		"rm -rf /etc/systemd/system/kubelet.service.d":                                                                     "kubelet.service.d",
		"rm -f /etc/systemd/system/kubelet.service.d/*.conf":                                                               "kubelet.service.d/*.conf",
		"curl -o /etc/systemd/system/service.d/zz.conf http://secret@x/zz.conf":                                            "service.d/zz.conf",
		"bash -c 'echo x > /run/systemd/system/containerd.service.d/zz.conf'":                                              "containerd.service.d/zz.conf",
		"install -m 0644 \\\n a \\\n " + etc + "http-proxy.conf":                                                           "containerd.service.d/http-proxy.conf",
		"sed -i s/a/b/ /etc/capi-proxy-patcher/proxy.env":                                                                  "/etc/capi-proxy-patcher/proxy.env",
		"echo NO_PROXY=x >> /etc/capi-proxy-patcher/node.env":                                                              "/etc/capi-proxy-patcher/node.env",
		"rm -r /etc/capi-proxy-patcher":                                                                                    "/etc/capi-proxy-patcher",
		"cp a " + etc + "zz.conf; rm " + etc + "zz.conf /etc/capi-proxy-patcher/proxy.env":                                 "containerd.service.d/zz.conf, /etc/capi-proxy-patcher/proxy.env",
		"systemctl daemon-reload && systemctl restart containerd kubelet":                                                  "",
		"mkdir -p " + etc + " \\\n  /etc/systemd/system/kubelet.service.d":                                                 "",
		"install -d -m 0755 /etc/systemd/system/kubelet.service.d":                                                         "",
		"sed -i s/a/b/ /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf":                                          "",
		"echo x > /etc/systemd/system/kubelet.service.d/20-node-ip.conf":                                                   "",
		"printf '[Service]\\nLimitNOFILE=1\\n' > " + etc + "override.conf":                                                 "",
		"printf '[Service]\\nEnvironment=KUBELET_EXTRA_ARGS=a\\n' > /etc/systemd/system/kubelet.service.d/override.conf":   "",
		"cat " + etc + "http-proxy.conf; ls -l " + etc:                                                                     "",
		"if [ -f " + etc + "http-proxy.conf ]; then grep -q proxy " + etc + "http-proxy.conf; fi":                          "",
		"# " + etc + "http-proxy.conf is of capi-proxy-patcher":                                                            "",
		"mv " + etc + "a " + etc + "http-proxy.conf.bak":                                                                   "",
		"cp a /etc/systemd/system/docker.service.d/http-proxy.conf":                                                        "",
		"cp a /etc/systemd/system/kubeadm.service.d/zz.conf":                                                               "",
		"set -a; . /etc/capi-proxy-patcher/proxy.env":                                                                      "",
		"export $(grep -v '^#' /etc/capi-proxy-patcher/proxy.env | xargs)":                                                 "",
		"sh /etc/capi-proxy-patcher/setup.sh own-addresses":                                                                "",
		"printf '[Service]\\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\\n' > /etc/systemd/system/crio.service.d/a": "",
		"podman run --env-file /etc/capi-proxy-patcher/proxy.env a":                                                        "",
		"echo HTTP_PROXY=http://a >> /etc/environment":                                                                     "",
	} {
		var pre, post []string
		if want != "" {
			pre, post = []string{"preKubeadmCommands[1] names " + want}, []string{"postKubeadmCommands[0] names " + want}
		}
		spec := patch.Spec{PreKubeadmCommands: []string{"echo", command}, PostKubeadmCommands: []string{command}}
		if diff := cmp.Diff(slices.Concat(pre, post), warned(t, spec, contract.Targets()...), cmp.Transformer("", func(s []string) string { return strings.Join(s, "\n") })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
	exports := patch.Spec{PreKubeadmCommands: []string{"echo", "export HTTP_PROXY='http://secret'", "no_proxy=x"}}
	want := []string{"preKubeadmCommands[1] sets HTTP_PROXY itself", "preKubeadmCommands[2] sets no_proxy itself"}
	if diff := cmp.Diff(want, warned(t, exports, contract.TargetCommands)); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
}

func TestEnsure_WarnsOfWhatIgnitionWrites(t *testing.T) {
	t.Parallel()
	const config = `
storage:
  files:
  - {path: /etc/systemd/system/kubelet.service.d/zz.conf, contents: {inline: "[Service]\nEnvironmentFile=/etc/environment\n"}}
  - {path: /etc/systemd/system/kubelet.service.d/z2.conf, contents: {inline: "[Service]\nEnvironment=HTTP_PROXY=http://secret\n"}}
  - {path: /etc/systemd/system/kubelet.service.d/z3.conf, contents: {remote: {url: "http://secret"}}}
  - {path: /etc/capi-proxy-patcher/proxy.env, contents: {inline: a}}
  - {path: /opt/a.sh, mode: 0744, contents: {inline: "rm /etc/systemd/system/containerd.service.d/http-proxy.conf"}}
  - {path: /opt/b.sh, contents: {inline: "systemctl restart containerd"}}
systemd:
  units:
  - name: containerd.service
    dropins:
    - {name: http-proxy.conf, contents: "[Service]\nEnvironment=HTTP_PROXY=http://secret\n"}
    - {name: 10-a.conf, contents: "[Service]\nEnvironmentFile=/etc/environment\n"}
    - {name: zz.conf, contents: "[Service]\nEnvironmentFile=/run/metadata/*\n"}
  - name: kubeadm.service
    dropins: [{name: zz.conf, contents: "[Service]\nEnvironmentFile=/run/metadata/*\n"}]
  - {name: a.service, contents: "[Service]\nExecStart=/bin/sh -c 'echo a > /etc/capi-proxy-patcher/proxy.env'\n"}
`
	spec := api.Spec(map[string]any{"ignition": map[string]any{"version": 1, "containerLinuxConfig": map[string]any{"additionalConfig": config, "strict": true}}})
	const at = "ignition.containerLinuxConfig.additionalConfig "
	want := []string{
		at + "/etc/systemd/system/kubelet.service.d/zz.conf reads variables from /etc/environment after http-proxy.conf",
		at + "note: /etc/systemd/system/kubelet.service.d/z3.conf comes after http-proxy.conf and cannot be read here",
		at + "names /etc/capi-proxy-patcher/proxy.env",
		at + "/opt/a.sh names containerd.service.d/http-proxy.conf",
		at + "names containerd.service.d/http-proxy.conf",
		at + "/etc/systemd/system/containerd.service.d/zz.conf reads variables from /run/metadata/* after http-proxy.conf",
		at + "names /etc/capi-proxy-patcher/proxy.env",
	}
	if diff := cmp.Diff(want, warned(t, spec, contract.Targets()...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "a: [", "- a", "storage: 5", strings.Repeat("[", 1<<20), strings.Repeat("[", 1<<16), "a: &a [" + strings.Repeat("x, ", 9) + "x]\nb: &b [" + strings.Repeat("*a, ", 9) + "*a]\nc: &c [" + strings.Repeat("*b, ", 99) + "*b]\nd: &d [" + strings.Repeat("*c, ", 999) + "*c]\ne: [" + strings.Repeat("*d, ", 9999) + "*d]"} {
		spec := api.Spec(map[string]any{"ignition": map[string]any{"containerLinuxConfig": map[string]any{"additionalConfig": bad}}})
		if len(spec.Ignition) > 0 {
			t.Errorf("%.10q: %v", bad, spec.Ignition)
		}
	}
}
