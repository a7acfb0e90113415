package systemd_test

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

// environmentOf is what ReadEnvironment says about a kubelet with these files.
func environmentOf(files map[string][]byte) (paths []string, e systemd.Environment) {
	paths = systemd.FindUnitFiles("kubelet", func(folder string) (names []string) {
		for name := range files {
			if path.Dir(name) == folder {
				names = append(names, path.Base(name))
			}
		}
		return names
	})
	var read []systemd.UnitFile
	for _, p := range paths {
		read = append(read, systemd.UnitFile{Path: p, Content: string(files[p])})
	}
	return paths, systemd.ReadEnvironment(read)
}

// TestReadEnvironment_SaysWhatSystemdDoes compares with a service that systemd has started.
func TestReadEnvironment_SaysWhatSystemdDoes(t *testing.T) {
	t.Parallel()
	const folder = "/etc/systemd/system/kubelet.service.d/"
	for name, test := range map[string]struct {
		path, content string
		more          map[string]string
	}{
		"ours alone":                   {"/etc/other.env", "V=theirs\n", nil},
		"a file that is read later":    {folder + "zz.conf", "[Service]\nEnvironmentFile=-/etc/other.env\n", map[string]string{"/etc/other.env": "V=theirs\n"}},
		"a file that is read before":   {folder + "10-a.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": "V=theirs\n"}},
		"a file that is missing":       {folder + "zz.conf", "[Service]\nEnvironmentFile=-/etc/other.env\n", nil},
		"another variable":             {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": "# V=x\n; V=x\nVV=theirs\nexport V=x\n"}},
		"a line of a variable":         {folder + "zz.conf", "[Service]\nEnvironment=V=theirs\n", nil},
		"files forgotten":              {folder + "zz.conf", "[Service]\nEnvironmentFile=\n", nil},
		"files forgotten, and another": {folder + "zz.conf", "[Service]\nEnvironmentFile=\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": "V=theirs\n"}},
		"taken away":                   {folder + "zz.conf", "[Service]\nUnsetEnvironment=\"W\" V\n", nil},
		"taken away before ours":       {folder + "10-a.conf", "[Service]\nUnsetEnvironment=V\n", nil},
		"taken away with a value":      {folder + "zz.conf", "[Service]\nUnsetEnvironment=V=ours\n", nil},
		"another value taken away":     {folder + "zz.conf", "[Service]\nUnsetEnvironment=V=other\n", nil},
		"taken away, and not":          {folder + "zz.conf", "[Service]\nUnsetEnvironment=V\nUnsetEnvironment=\n", nil},
		"another section":              {folder + "zz.conf", "[Unit]\nUnsetEnvironment=V\n", nil},
		"hidden by ours":               {"/run/systemd/system/kubelet.service.d/http-proxy.conf", "[Service]\nUnsetEnvironment=V\n", nil},
		"hidden by an empty one":       {"/run/systemd/system/kubelet.service.d/zz.conf", "[Service]\nUnsetEnvironment=V\n", map[string]string{folder + "zz.conf": ""}},
		"for all services":             {"/etc/systemd/system/service.d/zz.conf", "[Service]\nUnsetEnvironment=V\n", nil},
		"no drop-in":                   {folder + "zz.conf.off", "[Service]\nUnsetEnvironment=V\n", nil},
		"in quotes":                    {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": `V="a\"b\c $d 'e'"` + "\n"}},
		"in single quotes":             {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": `  V = 'a\"b c'` + "\n"}},
		"without quotes":               {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": `V=a\ \"b c  ` + "\n"}},
		"with a quote at the end":      {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": "V=a'\n"}},
		"assigned twice":               {folder + "zz.conf", "[Service]\nEnvironmentFile=/etc/other.env\n", map[string]string{"/etc/other.env": "V=a\nV=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string][]byte{
				systemd.DropInPath("kubelet"): []byte("[Service]\nEnvironmentFile=/etc/ours.env\n"),
				"/etc/ours.env":               []byte("V=\"ours\"\n"),
				test.path:                     []byte(test.content),
			}
			for name, content := range test.more {
				files[name] = []byte(content)
			}
			_, e := environmentOf(files)
			want, has := "", false
			for _, s := range e.Files {
				if value, found := systemd.LookUp(string(files[s.Value]), "V"); found {
					want, has = value, true
				}
			}
			if _, unset := e.Unsets("V", want); unset {
				want, has = "", false
			}
			started := realsystemd.Start(t, "kubelet", files)
			if !started.Started {
				t.Fatal(started.Log)
			}
			got, set := started.Environ["V"]
			if got != want || set != has {
				t.Errorf("the service has %q %t, want %q %t; log:\n%s", got, set, want, has, started.Log)
			}
		})
	}
}

func TestReadEnvironment_NamesTheUnitFiles(t *testing.T) {
	t.Parallel()
	const folder = "/etc/systemd/system/kubelet.service.d/"
	files := map[string][]byte{
		"/usr/lib/systemd/system/kubelet.service":              []byte("[Service]\nEnvironmentFile=/etc/a.env\n"),
		"/lib/systemd/system/kubelet.service":                  nil,
		folder + "20-b.conf":                                   []byte("[Service]\nEnvironmentFile=\nEnvironmentFile=-/etc/b.env\n"),
		"/usr/lib/systemd/system/kubelet.service.d/10-c.conf":  []byte("[Service]\nUnsetEnvironment=C\n"),
		"/usr/lib/systemd/system/kubelet.service.d/20-b.conf":  []byte("[Service]\nUnsetEnvironment=HIDDEN\n"),
		"/usr/lib/systemd/system/containerd.service.d/zz.conf": []byte("[Service]\nUnsetEnvironment=OTHER\n"),
	}
	paths, e := environmentOf(files)
	if diff := cmp.Diff([]string{"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d/10-c.conf", folder + "20-b.conf"}, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := systemd.Environment{
		Files: []systemd.Setting{{Value: "/etc/b.env", From: folder + "20-b.conf"}},
		Unset: []systemd.Setting{{Value: "C", From: "/usr/lib/systemd/system/kubelet.service.d/10-c.conf"}}, Reset: folder + "20-b.conf",
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	loaded := e.Loaded([]string{"/etc/b.env", "/etc/transient.env"}, nil)
	want = systemd.Environment{Files: []systemd.Setting{want.Files[0], {Value: "/etc/transient.env"}}, Reset: want.Reset}
	if diff := cmp.Diff(want, loaded); diff != "" {
		t.Errorf("what systemd has loaded (-want +got):\n%s", diff)
	}
}
