package patch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// bundle writes the certificates that a node is to trust.
func (n *node) bundle(certificates ...string) {
	n.t.Helper()
	n.write(ourFolder+"trusted-ca.pem", "# Managed by capi-proxy-patcher\n"+strings.Join(certificates, ""))
}

func fakeCertificate(text string) string { return strings.ReplaceAll(certificate, "one", text) }

func TestCertificates_InEveryTrustStore(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]struct{ folder, suffix, command, call string }{
		"RHEL":    {"etc/pki/ca-trust/source/anchors/", ".crt", "update-ca-trust", "update-ca-trust \n"},
		"Arch":    {"etc/ca-certificates/trust-source/anchors/", ".crt", "update-ca-trust", "update-ca-trust \n"},
		"SUSE":    {"etc/pki/trust/anchors/", ".crt", "update-ca-certificates", "update-ca-certificates \n"},
		"Debian":  {debianStore, ".crt", "update-ca-certificates", debianCalls},
		"Photon":  {"etc/ssl/certs/", ".pem", "rehash_ca_certificates.sh", "rehash_ca_certificates.sh \n"},
		"Flatcar": {"etc/ssl/certs/", ".pem", "update-ca-certificates", "update-ca-certificates \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachNode(t, func(t *testing.T, n *node) {
				t.Helper()
				n.remove(debianStore, "bin/update-ca-certificates", ourFolder+"proxy.env")
				n.folder("etc/ssl/certs") // each system has it
				n.remove("etc/ssl/certs/x")
				n.write(store.folder+"theirs"+store.suffix, "theirs")
				updates := "cat " + n.path(store.folder) + "/capi-proxy-patcher-* >" + n.path("trusted") + " 2>/dev/null\n:"
				a, b, c := certificate, fakeCertificate("leaf"), fakeCertificate(`$(id) * "two"`)
				const failed = "certificates may not be trusted: "
				for _, step := range []struct {
					name    string
					bundle  []string
					command string
					says    string
					files   int
					marked  bool
				}{
					{"three", []string{a, b, c}, updates, "", 3, true},
					{"the same again", []string{a, b, c}, updates, "", 3, true},
					{"a change under the first name", []string{c}, updates, "", 1, true},
					{"removal that fails", nil, "exit 1", failed + strings.TrimSpace(store.call) + " failed, status 1", 0, true},
					{"removal that is tried again", nil, updates, "", 0, false},
					{"nothing to do", nil, "exit 1", "", 0, false},
				} {
					n.bundle(step.bundle...)
					n.stub(store.command, step.command)
					if says := strings.Join(n.run("certificates"), "\n"); says != step.says {
						t.Errorf("%s: says %q, want %q", step.name, says, step.says)
					}
					want := "theirs" + store.suffix
					for i := step.files; i > 0; i-- {
						want = fmt.Sprint("capi-proxy-patcher-", i, store.suffix, " ", want)
					}
					if got := n.names(store.folder); got != want {
						t.Errorf("%s: files %s, want %s", step.name, got, want)
					}
					if got := strings.Contains(n.names(ourFolder), "trusts"); got != step.marked {
						t.Errorf("%s: marked %t", step.name, got)
					}
					wantCalls := store.call
					if step.name == "nothing to do" {
						wantCalls = ""
					}
					if n.calls != wantCalls {
						t.Errorf("%s: calls %q", step.name, n.calls)
					}
					if got := n.read("trusted"); step.command == updates && got != strings.Join(step.bundle, "") {
						t.Errorf("%s: trusts %q", step.name, got)
					}
				}
			})
		})
	}
}

func TestCertificates_WithoutABundleAllGo(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.under = []string{"/bin/sh", "-c", `umask 077; exec "$@"`, "sh"}
		n.run()
		if info, err := os.Stat(n.path(debianStore + "capi-proxy-patcher-1.crt")); err != nil || info.Mode() != 0o644 {
			t.Errorf("what every user reads: %v, %v", info, err)
		}
		n.remove(ourFolder + "trusted-ca.pem")
		if says := n.run(); len(says) > 0 || n.names(debianStore) != "theirs.crt" || n.calls != asked+debianCalls+restarted {
			t.Errorf("says %q, calls %q; files %s", says, n.calls, n.names(debianStore))
		}
		n.remove(debianStore) // nothing to do, and no store for it
		if says := n.run(); len(says) > 0 || n.calls != asked+restarted {
			t.Errorf("says %q, calls %q", says, n.calls)
		}
	})
}

// The command that Debian and Ubuntu ship, on folders of the test.
func TestCertificates_WithTheRealCommandOfDebian(t *testing.T) {
	t.Parallel()
	const command = "/usr/sbin/update-ca-certificates"
	if help, err := os.ReadFile(command); err != nil || !strings.Contains(string(help), "--localcertsdir") {
		t.Skipf("update-ca-certificates of Debian is not installed: %v", err)
	}
	first, second, distribution := string(pki.Make(t, "first").PEM), string(pki.Make(t, "second").PEM), string(pki.Make(t, "d").PEM)
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.write("etc/ca-certificates.conf", "distribution.crt\n")
		n.write("usr/share/ca-certificates/distribution.crt", distribution)
		n.write("etc/ssl/certs/README", "x")
		n.remove(debianStore+"theirs.crt", ourFolder+"proxy.env")
		n.stub("update-ca-certificates", "PATH=/usr/sbin:/usr/bin:/sbin:/bin; R="+n.root+"\nexec "+command+` \
	--certsconf $R/etc/ca-certificates.conf --certsdir $R/usr/share/ca-certificates --localcertsdir $R/`+debianStore+` \
	--etccertsdir $R/etc/ssl/certs --hooksdir $R/none "$@"`)
		for _, step := range []struct {
			name         string
			trusted, not []string
		}{
			{"two", []string{first, second}, nil},
			{"the second, under the name of the first", []string{second}, []string{first}},
			{"none", nil, []string{first, second}},
		} {
			n.bundle(step.trusted...)
			if says := n.run("certificates"); len(says) > 0 {
				t.Errorf("%s: says %q", step.name, says)
			}
			if got := n.read("etc/ssl/certs/ca-certificates.crt"); got != distribution+strings.Join(step.trusted, "") {
				t.Errorf("%s: the bundle of the system is\n%s", step.name, got)
			}
			links, _ := filepath.Glob(n.path("etc/ssl/certs/????????.0"))
			if len(links) != 1+len(step.trusted) {
				t.Errorf("%s: hash links %v", step.name, links)
			}
			for i, cert := range append(step.trusted, step.not...) {
				// OpenSSL looks a certificate up by its hash link.
				verify := exec.CommandContext(t.Context(), "openssl", "verify", "-no-CAfile", "-no-CAstore", "-CApath", n.path("etc/ssl/certs"))
				verify.Stdin = strings.NewReader(cert)
				if out, err := verify.CombinedOutput(); (err == nil) != (i < len(step.trusted)) {
					t.Errorf("%s: openssl verify: %v\n%s", step.name, err, out)
				}
			}
		}
	})
}

// p11-kit, which update-ca-trust of RHEL's kin calls, drops a certificate that is no authority without a word. It must not
// take the others with it.
func TestCertificates_WithTheRealP11Kit(t *testing.T) {
	t.Parallel()
	const module = "/usr/share/p11-kit/modules/p11-kit-trust.module"
	if _, err := os.Stat(module); err != nil {
		t.Skipf("p11-kit is not installed: %v", err)
	}
	inNamespace(t) // to show p11-kit another folder
	authority := pki.Make(t, "authority")
	leaf, _ := authority.IssueFor(t, "leaf.example")
	first, second := string(authority.PEM), string(pki.Make(t, "second").PEM)
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.folder("etc/pki/ca-trust/source/anchors")
		n.write("module", "module: p11-kit-trust.so\nx-init-reserved: paths="+n.path("etc/pki/ca-trust/source")+"\ntrust-policy: yes\n")
		n.stub("update-ca-trust", "PATH=/usr/bin:/bin; export R="+n.root+"; exec unshare --mount sh -c 'mount --bind $R/module "+module+" && "+
			"trust extract --format=pem-bundle --filter=ca-anchors --overwrite --purpose=server-auth $R/trusted'")
		n.bundle(first, string(leaf), second)
		if says := n.run(); len(says) > 0 || n.calls != asked+"update-ca-trust \n"+restarted {
			t.Errorf("says %q, calls %q", says, n.calls)
		}
		got := n.read("trusted")
		if strings.Count(got, "BEGIN") != 2 || !strings.Contains(got, first) || !strings.Contains(got, second) {
			t.Errorf("the system trusts\n%s", got)
		}
	})
}
