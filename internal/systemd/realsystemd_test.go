package systemd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

func TestEnvironmentDropIn_ReachesAServiceOfSystemd(t *testing.T) {
	t.Parallel()
	vars := append(rudeVars(), randomVars(700)...)
	want := asMap(vars)
	content, err := systemd.EnvironmentDropIn(vars)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readBySystemd(t, content)); diff != "" {
		t.Errorf("systemd (-want +got):\n%s", diff)
	}
	got, err := readLikeSystemd(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
}

func TestEnvironmentFileDropIn_ReachesAServiceOfSystemd(t *testing.T) {
	t.Parallel()
	const path = "/etc/capi-proxy-patcher/proxy.env"
	env, err := systemd.EnvironmentFile([]systemd.Var{{Name: "HTTP_PROXY", Value: "http://p%40ss@proxy:3128"}})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{systemd.DropInPath("containerd"): []byte(systemd.EnvironmentFileDropIn("", path)), path: env}
	if got := realsystemd.Start(t, "containerd", files); got.Environ["HTTP_PROXY"] != "http://p%40ss@proxy:3128" {
		t.Errorf("environment %v, log:\n%s", got.Environ, got.Log)
	}
	delete(files, path)
	if got := realsystemd.Start(t, "containerd", files); !got.Started {
		t.Errorf("the service did not start without its environment file:\n%s", got.Log)
	}
}

// Which of two drop-ins of one name counts: the claims of DropInOf.
func TestDropInOf_FilesOfOneNameHideEachOther(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ path, want string }{
		"ours hides one of a package":              {"/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf", "ours"},
		"ours hides one of this boot":              {"/run/systemd/system/kubelet.service.d/http-proxy.conf", "ours"},
		"ours hides one for all services":          {"/etc/systemd/system/service.d/http-proxy.conf", "ours"},
		"ours hides one in a higher folder":        {"/etc/systemd/system.control/service.d/http-proxy.conf", "ours"},
		"one of systemctl set-property hides ours": {"/etc/systemd/system.control/kubelet.service.d/http-proxy.conf", "theirs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if systemd.DropInOf(test.path, "kubelet") != systemd.DropInName {
				t.Errorf("DropInOf(%q) = false", test.path)
			}
			got := realsystemd.Start(t, "kubelet", map[string][]byte{
				systemd.DropInPath("kubelet"): []byte("[Service]\nEnvironment=OURS=x WHOSE=ours\n"),
				test.path:                     []byte("[Service]\nEnvironment=THEIRS=x WHOSE=theirs\n"),
			})
			_, ours := got.Environ["OURS"]
			_, theirs := got.Environ["THEIRS"]
			if got.Environ["WHOSE"] != test.want || ours == theirs {
				t.Errorf("environment %v, log:\n%s", got.Environ, got.Log)
			}
		})
	}
}

// The model earns its place by agreeing on units that EnvironmentDropIn would
// never write: random lines of the characters that steer the parser.
func TestReadLikeSystemd_AgreesWithSystemd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("random unit ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // reproducible, not secret
			alphabet := []string{
				`\`, `\\`, `\"`, `"`, `'`, "$", "#", ";", "=", " ", "\t", "%%", "%", "%4", "n", "x41", "101",
				"s", "é", "{", "u00e9", "[", "A=b",
			}
			var unit strings.Builder
			unit.WriteString("[Service]\n")
			written := 0
			for written < 300 {
				line := "Environment=" + []string{"", `"`}[random.IntN(2)] + fmt.Sprintf("L%d=", written)
				for range random.IntN(10) {
					line += alphabet[random.IntN(len(alphabet))]
				}
				line += []string{"", `"`, `"`, `'`}[random.IntN(4)]
				if _, err := readLikeSystemd("[Service]\n" + line + "\n"); errors.Is(err, errUnmodelled) {
					continue
				}
				unit.WriteString(line + "\n\n")
				written++
			}
			want, err := readLikeSystemd(unit.String())
			if err != nil || len(want) < 60 {
				t.Fatalf("%d variables, too few to prove anything: %v", len(want), err)
			}
			if diff := cmp.Diff(want, readBySystemd(t, []byte(unit.String()))); diff != "" {
				t.Errorf("(-model +systemd):\n%s", diff)
			}
		})
	}
}

// readBySystemd returns the variables that a service has because of the drop-in.
func readBySystemd(t *testing.T, dropIn []byte) map[string]string {
	t.Helper()
	return addedBySystemd(t, map[string][]byte{systemd.DropInPath("kubelet"): dropIn})
}
