package patch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// The command that Debian and Ubuntu ship, on folders of the test.
func TestInstallCA_WithTheRealCommandOfDebian(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"as installed": "usr/local/share/ca-certificates", "with nothing writable below /usr": "etc/capi-proxy-patcher/certificates",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withDebian(t, folder)
		})
	}
}

func withDebian(t *testing.T, folder string) {
	t.Helper()
	const command = "/usr/sbin/update-ca-certificates"
	if _, err := os.Stat(command); err != nil {
		t.Skip("update-ca-certificates is not installed")
	}
	if help, err := os.ReadFile(command); err != nil || !strings.Contains(string(help), "--localcertsdir") {
		t.Skipf("update-ca-certificates is not that of Debian: %v", err)
	}
	n := newTree(t, "sh")
	n.write("etc/os-release", "ID=debian\n")
	n.write("etc/ca-certificates.conf", "distribution.crt\n")
	distribution := string(pki.Make(t, "distribution").PEM)
	n.write("usr/share/ca-certificates/distribution.crt", distribution)
	n.write("etc/ssl/certs/README", "x")
	if folder != "usr/local/share/ca-certificates" {
		n.write("usr/local", "a file: nothing can be made below it")
	}
	n.stub("update-ca-certificates", `PATH=/usr/sbin:/usr/bin:/sbin:/bin exec `+command+` --certsconf "$R/etc/ca-certificates.conf" \
	--certsdir "$R/usr/share/ca-certificates" --localcertsdir "$R/usr/local/share/ca-certificates" \
	--etccertsdir "$R/etc/ssl/certs" --hooksdir "$R/none" "$@"`)
	n.env = append(n.env, "R="+n.root)
	first, second := string(pki.Make(t, "first").PEM), string(pki.Make(t, "second").PEM)

	for _, step := range []struct {
		name, bundle string
		want         []string
	}{
		{"two certificates", "# corporate\n" + first + strings.TrimSuffix(second, "\n"), []string{distribution, first, second}},
		{"the same once more", first + second, []string{distribution, first, second}},
		{"only the second", second, []string{distribution, second}},
		{"none", "# none\n", []string{distribution}},
		{"none once more", "# none\n", []string{distribution}},
		{"the first after none", first, []string{distribution, first}},
	} {
		n.write(bundlePath, step.bundle)
		if got := n.run("install-ca"); got.Exit != 0 {
			t.Fatalf("%s: %+v", step.name, got)
		}
		if got := n.read("etc/ssl/certs/ca-certificates.crt"); got != strings.Join(step.want, "") {
			t.Errorf("%s: the bundle of the system is\n%s", step.name, got)
		}
		hashes, err := filepath.Glob(filepath.Join(n.root, "etc/ssl/certs", "????????.0"))
		if err != nil || len(hashes) != len(step.want) {
			t.Errorf("%s: %d hash links for %d certificates: %v", step.name, len(hashes), len(step.want), err)
		}
		for _, cert := range step.want {
			verifyByFolder(t, n, cert)
		}
	}
}

// verifyByFolder asks OpenSSL, which looks a certificate up by its hash link.
func verifyByFolder(t *testing.T, n *tree, cert string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", "verify", "-no-CAfile", "-no-CAstore", "-CApath",
		filepath.Join(n.root, "etc/ssl/certs"))
	cmd.Stdin = strings.NewReader(cert)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl verify: %v\n%s", err, out)
	}
}
