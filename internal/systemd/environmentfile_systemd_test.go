package systemd_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

func TestEnvironmentFile_IsReadAlikeBySystemd(t *testing.T) {
	t.Parallel()
	vars := append(rudeVars(), randomVars(700)...)
	got := readFileBySystemd(t, render(t, vars))
	if diff := cmp.Diff(asMap(vars), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The model earns its place by agreeing on files that Render would never
// write: random lines of the characters that steer the parser.
func TestReadFileLikeSystemd_AgreesWithSystemd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("random file ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible, not secret
			alphabet := []string{
				`\`, `"`, `'`, "$", "`", "#", ";", "=", " ", "\t", "\n", "\r", "%", "a", "b", "n", "é", "{",
				"\x01", "\u0085",
			}
			var file strings.Builder
			for line := range 300 {
				fmt.Fprintf(&file, "L%d=", line)
				for range random.IntN(14) {
					file.WriteString(alphabet[random.IntN(len(alphabet))])
				}
				// An empty line in double and single quotes closes what is open
				// most of the time, else one line would swallow the rest.
				file.WriteString([]string{"\n", "\"\n", "'\n"}[random.IntN(3)])
			}
			want := readFileLikeSystemd(file.String())
			if len(want) < 30 {
				t.Fatalf("only %d variables, too few to prove anything", len(want))
			}
			if diff := cmp.Diff(want, readFileBySystemd(t, []byte(file.String()))); diff != "" {
				t.Errorf("(-model +systemd):\n%s", diff)
			}
		})
	}
}

// readFileBySystemd returns the variables that a service has because of the file.
func readFileBySystemd(t *testing.T, content []byte) map[string]string {
	t.Helper()
	const path = "/etc/capi-proxy-patcher/proxy.env"
	dropIn := []byte("[Service]\nEnvironmentFile=" + path + "\n")
	return addedBySystemd(t, map[string][]byte{systemd.DropInPath("kubelet"): dropIn, path: content})
}

// addedBySystemd returns the variables that kubelet has because of files.
func addedBySystemd(t *testing.T, files map[string][]byte) map[string]string {
	t.Helper()
	got := realsystemd.Start(t, "kubelet", files)
	if !got.Started {
		t.Fatalf("the service did not start:\n%s", got.Log)
	}
	for name := range realsystemd.Start(t, "kubelet", nil).Environ {
		delete(got.Environ, name)
	}
	return got.Environ
}

// randomVars are the same on every run.
func randomVars(n int) []systemd.Var {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible, not secret
	special := []rune("\\\"'$`%!#;~*&|<>(){}[]= 40C3nNabx")
	vars := make([]systemd.Var, 0, n)
	for i := range n {
		var value strings.Builder
		for range random.IntN(40) {
			switch random.IntN(4) {
			case 0:
				value.WriteRune(' ' + random.Int32N('~'-' '+1))
			case 1:
				value.WriteRune(0xa0 + random.Int32N(0x500))
			default:
				value.WriteRune(special[random.IntN(len(special))])
			}
		}
		text := strings.NewReplacer("{{", "{", "{%", "%", "{#", "#").Replace(value.String())
		text = strings.NewReplacer("{", "(").Replace(text)
		vars = append(vars, systemd.Var{Name: fmt.Sprintf("RANDOM_%d", i), Value: text})
	}
	return vars
}
