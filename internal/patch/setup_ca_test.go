package patch_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const bundlePath = "etc/capi-proxy-patcher/trusted-ca.pem"

// fakeCert is a certificate as far as the script looks.
func fakeCert(text string) string {
	return "-----BEGIN CERTIFICATE-----\n" + text + "\n-----END CERTIFICATE-----\n"
}

func TestInstallCA_KnowsTheFamily(t *testing.T) {
	t.Parallel()
	const (
		debian = "usr/local/share/ca-certificates"
		rhel   = "etc/pki/ca-trust/source/anchors"
		suse   = "etc/pki/trust/anchors"
		certs  = "etc/ssl/certs"
		arch   = "etc/ca-certificates/trust-source/anchors"

		updateCerts = "update-ca-certificates"
		updateTrust = "update-ca-trust"
		rehash      = "rehash_ca_certificates.sh"
	)
	tests := map[string]struct {
		osRelease            string
		stub, call, dir, ext string
	}{
		"Debian":                             {"ID=debian\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"Ubuntu":                             {"NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"like Ubuntu":                        {"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"RHEL":                               {"ID=\"rhel\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Fedora":                             {"ID=fedora\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Rocky":                              {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Alma":                               {"ID=\"almalinux\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Oracle":                             {"ID=\"ol\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Amazon Linux 2023":                  {"ID=\"amzn\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Mariner":                            {"ID=mariner\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Azure Linux":                        {"ID=azurelinux\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"SLES":                               {"ID=\"sles\"\nID_LIKE=\"suse\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"SLE Micro":                          {"ID=\"sl-micro\"\nID_LIKE=\"suse sle-micro\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"openSUSE":                           {"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"Photon":                             {"NAME=\"VMware Photon OS\"\nID=photon\n", rehash, rehash + " ", certs, "pem"},
		"Flatcar":                            {"ID=flatcar\nID_LIKE=coreos\n", updateCerts, updateCerts + " ", certs, "pem"},
		"Arch":                               {"ID=arch\n", updateTrust, updateTrust + " ", arch, "crt"},
		"like Flatcar, with another command": {"ID=odd\nID_LIKE=\"flatcar coreos\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"like Debian, with another command":  {"ID=odd\nID_LIKE=\"debian rhel\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"unknown, with update-ca-trust":      {"ID=odd\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"unknown, with rehash_ca_certificates.sh": {"ID=odd\n", rehash, rehash + " ", certs, "pem"},
		"unknown, with update-ca-certificates":    {"ID=odd\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"no os-release":                           {"", updateTrust, updateTrust + " extract", rhel, "crt"},
		"os-release that is no shell":             {"ID=(\n", updateTrust, updateTrust + " extract", rhel, "crt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneTree(t, func(n *tree) {
				t := n.t
				if test.osRelease != "" {
					n.write("etc/os-release", test.osRelease)
				}
				n.updates(test.stub, test.dir, "etc/ssl/cert.pem")
				n.write(bundlePath, "# Acme\n"+fakeCert("one")+"\n# Acme 2\n"+fakeCert("two"))
				want := treeOutcome{
					Stdout: "capi-proxy-patcher: trusting 2 certificates in ROOT/" + test.dir + "\n",
					Calls:  test.call + "\n",
				}
				wantFiles := map[string]string{
					"capi-proxy-patcher-1." + test.ext: fakeCert("one"),
					"capi-proxy-patcher-2." + test.ext: fakeCert("two"),
				}
				for range 2 { // the second run changes nothing
					if diff := cmp.Diff(want, n.run("install-ca")); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(wantFiles, n.files(test.dir)); diff != "" {
						t.Errorf("files (-want +got):\n%s", diff)
					}
				}
				emptied(n, test.call, test.dir)
			})
		})
	}
}

// emptied removes all certificates from the bundle of a node that trusts some of them, and one that is not ours.
func emptied(n *tree, call, dir string) {
	t := n.t
	t.Helper()
	n.write(dir+"/other.crt", "theirs")
	n.write(bundlePath, "# The proxy Secret has no trustedCA.\n")
	for _, want := range []treeOutcome{
		{Stdout: "capi-proxy-patcher: trusting 0 certificates in ROOT/" + dir + "\n", Calls: call + "\n"},
		{Stdout: "capi-proxy-patcher: no certificates in ROOT/" + bundlePath + ", nothing to install\n"},
	} {
		if diff := cmp.Diff(want, n.run("install-ca")); diff != "" {
			t.Errorf("without certificates (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"other.crt": "theirs"}, n.files(dir)); diff != "" {
			t.Errorf("files without certificates (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"setup.sh", "trusted-ca.pem"},
			slices.Sorted(maps.Keys(n.files("etc/capi-proxy-patcher")))); diff != "" {
			t.Errorf("files of the product (-want +got):\n%s", diff)
		}
	}
}

// Certificates that the system may still trust must not be forgotten.
func TestInstallCA_TriesAgainToRemoveThem(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		const dir = "etc/pki/ca-trust/source/anchors"
		n.write("etc/os-release", "ID=rhel\n")
		n.updates("update-ca-trust", dir, "etc/pki/tls/certs/ca-bundle.crt")
		n.write(bundlePath, fakeCert("a"))
		n.run("install-ca")
		n.write(bundlePath, "")
		n.stub("update-ca-trust", "exit 1")
		failed := treeOutcome{
			Exit: 1, Calls: "update-ca-trust extract\n",
			Stderr: "capi-proxy-patcher: update-ca-trust extract does not work here: see the lines above\n",
		}
		for range 2 {
			if diff := cmp.Diff(failed, n.run("install-ca")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		n.remove("stubs/update-ca-trust")
		missing := treeOutcome{
			Exit:   1,
			Stderr: "capi-proxy-patcher: update-ca-trust not found: add it to the image, or leave trust out of the annotation capi-proxy-patcher.io/targets\n",
		}
		if diff := cmp.Diff(missing, n.run("install-ca")); diff != "" {
			t.Errorf("without the command (-want +got):\n%s", diff)
		}
		n.updates("update-ca-trust", dir, "etc/pki/tls/certs/ca-bundle.crt")
		emptied(n, "update-ca-trust extract", dir)
	})
}

func TestInstallCA_ReadsEveryShapeOfABundle(t *testing.T) {
	t.Parallel()
	many, manyCerts := strings.Builder{}, make([]string, 0, 150)
	for i := range 150 {
		manyCerts = append(manyCerts, fmt.Sprint("cert ", i))
		many.WriteString(fakeCert(manyCerts[i]))
	}
	tests := map[string]struct {
		bundle string
		want   []string
	}{
		"one":                      {fakeCert("a"), []string{"a"}},
		"no final newline":         {strings.TrimSuffix(fakeCert("a")+fakeCert("b"), "\n"), []string{"a", "b"}},
		"text around certificates": {"Subject: x\n\n" + fakeCert("a") + "\n\n# y\n" + fakeCert("b") + "\nend\n", []string{"a", "b"}},
		"blanks after the marks":   {"-----BEGIN CERTIFICATE----- \na\n-----END CERTIFICATE-----\t\n", []string{"a"}},
		"characters of the shell":  {fakeCert(`$(id) "x" \n * %s`), []string{`$(id) "x" \n * %s`}},
		"a private key as well":    {"-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----\n" + fakeCert("a"), []string{"a"}},
		"many":                     {many.String(), manyCerts},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneTree(t, func(n *tree) {
				t := n.t
				n.write("etc/os-release", "ID=photon\n")
				n.write("etc/pki/tls/certs/other", "")
				n.updates("rehash_ca_certificates.sh", "etc/ssl/certs", "etc/pki/tls/certs/ca-bundle.crt")
				n.write(bundlePath, test.bundle)
				if got := n.run("install-ca"); got.Exit != 0 {
					t.Fatalf("%+v", got)
				}
				got := n.files("etc/ssl/certs")
				if len(got) != len(test.want) {
					t.Errorf("%d files, want %d", len(got), len(test.want))
				}
				for i, text := range test.want {
					clean := strings.NewReplacer("----- \n", "-----\n", "-----\t\n", "-----\n")
					if file := clean.Replace(got[fmt.Sprintf("capi-proxy-patcher-%d.pem", i+1)]); file != fakeCert(text) {
						t.Errorf("certificate %d: %q", i+1, file)
					}
				}
			})
		})
	}
}

func TestInstallCA_RemovesOnlyOldFilesOfItsOwn(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		const dir = "usr/local/share/ca-certificates"
		n.write("etc/os-release", "ID=debian\n")
		n.updates("update-ca-certificates", dir, "etc/ssl/certs/ca-certificates.crt")
		n.write(bundlePath, fakeCert("a")+fakeCert("b")+fakeCert("c"))
		n.run("install-ca")
		for _, name := range []string{
			"corp.crt", "capi-proxy-patcher-corp.crt", "capi-proxy-patcher-9.pem",
			"capi-proxy-patcher.crt",
		} {
			n.write(dir+"/"+name, "theirs")
		}
		n.write(dir+"/capi-proxy-patcher-12.crt", "ours")
		n.write(bundlePath, fakeCert("c"))
		n.run("install-ca")
		want := map[string]string{
			"capi-proxy-patcher-1.crt": fakeCert("c"),
			"corp.crt":                 "theirs", "capi-proxy-patcher-corp.crt": "theirs",
			"capi-proxy-patcher-9.pem": "theirs", "capi-proxy-patcher.crt": "theirs",
		}
		if diff := cmp.Diff(want, n.files(dir)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Every user of the node must be able to read what the node trusts.
func TestInstallCA_WritesForEveryoneWhateverTheUmask(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n.write("etc/os-release", "ID=debian\n")
		n.updates("update-ca-certificates", "usr/local/share/ca-certificates", "etc/ssl/certs/ca-certificates.crt")
		n.write(bundlePath, fakeCert("a"))
		n.shell = append(n.shell, "-c", `umask 077; . "$0"`)
		if got := n.run("install-ca"); got.Exit != 0 {
			t.Fatalf("%+v", got)
		}
		for path, want := range map[string]os.FileMode{"": 0o755, "/capi-proxy-patcher-1.crt": 0o644} {
			info, err := os.Stat(filepath.Join(n.root, "usr/local/share/ca-certificates"+path))
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%q: mode %v, want %v: %v", path, info.Mode(), want, err)
			}
		}
	})
}

func TestInstallCA_DoesNothingOnAnUnknownSystemWithoutCertificates(t *testing.T) {
	t.Parallel()
	for name, bundle := range map[string]string{
		"nothing": "", "a comment": "# no trusted CA\n", "a comment without newline": "# none",
		"a key": "-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				t := n.t
				// It would be an error with certificates.
				n.write("usr/local/share/ca-certificates/capi-proxy-patcher-1.crt", "old")
				n.write(bundlePath, bundle)
				want := treeOutcome{Stdout: "capi-proxy-patcher: no certificates in ROOT/" + bundlePath + ", nothing to install\n"}
				if diff := cmp.Diff(want, n.run("install-ca")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if got := n.files("usr/local/share/ca-certificates"); got["capi-proxy-patcher-1.crt"] != "old" {
					t.Errorf("removed a file: %v", got)
				}
			})
		})
	}
}

func TestInstallCA_SaysWhatToDoWhenItFails(t *testing.T) {
	t.Parallel()
	const trust = "leave trust out of the annotation capi-proxy-patcher.io/targets\n"
	debian := func(n *tree) {
		n.write("etc/os-release", "ID=debian\n")
		n.stub("update-ca-certificates", "")
	}
	half := strings.TrimSuffix(fakeCert("b"), "-----END CERTIFICATE-----\n")
	tests := map[string]struct {
		prepare func(n *tree)
		stderr  string
		// updates says that the update command ran before the failure.
		updates bool
	}{
		"an unknown system": {
			func(n *tree) { n.write("etc/os-release", "ID=nixos\n"); n.write(bundlePath, fakeCert("a")) },
			"do not know how to trust certificates on this system (nixos): use a supported image, or " + trust, false,
		},
		"a system without a name": {
			func(n *tree) { n.write(bundlePath, fakeCert("a")) },
			"do not know how to trust certificates on this system (no os-release): use a supported image, or " + trust, false,
		},
		"a known system without the command": {
			func(n *tree) { n.write("etc/os-release", "ID=ubuntu\n"); n.write(bundlePath, fakeCert("a")) },
			"update-ca-certificates not found: add it to the image, or " + trust, false,
		},
		"no bundle":                  {debian, "cannot read ROOT/" + bundlePath + "\n", false},
		"a certificate cut off":      {func(n *tree) { debian(n); n.write(bundlePath, fakeCert("a")+half) }, "ROOT/" + bundlePath + ": certificate 2 has no beginning or no end\n", false},
		"a certificate in another":   {func(n *tree) { debian(n); n.write(bundlePath, half+fakeCert("b")) }, "ROOT/" + bundlePath + ": certificate 1 has no beginning or no end\n", false},
		"an end without a beginning": {func(n *tree) { debian(n); n.write(bundlePath, "-----END CERTIFICATE-----") }, "ROOT/" + bundlePath + ": certificate 1 has no beginning or no end\n", false},
		"a folder that is a file": {
			func(n *tree) {
				n.write("etc/os-release", "ID=rhel\n")
				n.stub("update-ca-trust", "")
				n.write("etc/pki/ca-trust/source", "x")
				n.write(bundlePath, fakeCert("a"))
			},
			"cannot create ROOT/etc/pki/ca-trust/source/anchors\n", false,
		},
		"a certificate that is a folder": {
			func(n *tree) {
				debian(n)
				n.write("usr/local/share/ca-certificates/capi-proxy-patcher-2.crt/x", "x")
				n.write(bundlePath, fakeCert("a")+fakeCert("b"))
			},
			"cannot write ROOT/usr/local/share/ca-certificates/capi-proxy-patcher-2.crt\n", false,
		},
		"the command makes no bundle": {
			func(n *tree) { debian(n); n.write(bundlePath, fakeCert("a")) },
			"update-ca-certificates --fresh has ended, but no bundle of this system has a certificate of ROOT/usr/local/share/ca-certificates: use a supported image, or " + trust, true,
		},
		"the command makes a bundle without ours": {
			func(n *tree) {
				debian(n)
				n.write("etc/ssl/certs/ca-certificates.crt", fakeCert("theirs")+strings.Replace(fakeCert("a"), "a\n", "ab\n", 1))
				n.write(bundlePath, fakeCert("a"))
			},
			"update-ca-certificates --fresh has ended, but no bundle of this system has a certificate of ROOT/usr/local/share/ca-certificates: use a supported image, or " + trust, true,
		},
		"the command fails": {
			func(n *tree) {
				debian(n)
				n.remove("stubs/update-ca-certificates")
				n.stub("update-ca-certificates", "echo working; echo 'disk full' >&2; exit 7")
				n.write(bundlePath, fakeCert("a"))
			},
			"working\ncapi-proxy-patcher: disk full\ncapi-proxy-patcher: update-ca-certificates --fresh does not work here: see the lines above\n", true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				t := n.t
				test.prepare(n)
				want := treeOutcome{Exit: 1, Stderr: "capi-proxy-patcher: " + test.stderr}
				if test.updates {
					want.Calls = "update-ca-certificates --fresh\n"
				}
				if diff := cmp.Diff(want, n.run("install-ca")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A command removes all links before it makes them again, and stops in between: the disk is full.
func TestInstallCA_LeavesTheLinksOfTheTrustStore(t *testing.T) {
	t.Parallel()
	const remove = `for f in "$R"/etc/ssl/certs/*; do [ ! -L "$f" ] || rm "$f"; done
`
	for name, test := range map[string]struct {
		id, stub, body string
		exit           int
	}{
		"it says so":                     {"debian", "update-ca-certificates", remove + "exit 1", 1},
		"it does not say so":             {"photon", "rehash_ca_certificates.sh", remove, 1},
		"it is killed with the script":   {"flatcar", "update-ca-certificates", remove + "kill -9 $PPID", -1},
		"it has made some of them again": {"flatcar", "update-ca-certificates", remove + `ln -s other "$R/etc/ssl/certs/11111111.0"; exit 1`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				t := n.t
				inRoot := func(body string) string { return strings.ReplaceAll(body, "$R", n.root) }
				n.write("etc/os-release", "ID="+test.id+"\n")
				n.write("usr/share/ca-certificates/theirs.pem", fakeCert("theirs"))
				n.write("etc/ssl/certs/plain.pem", fakeCert("plain"))
				links := map[string]string{
					"theirs.pem": "../../../usr/share/ca-certificates/theirs.pem", "11111111.0": "theirs.pem", "22222222.0": "plain.pem", "dangling": "nothing",
				}
				for at, to := range links {
					if err := os.Symlink(to, filepath.Join(n.root, "etc/ssl/certs", at)); err != nil {
						t.Fatal(err)
					}
				}
				n.write(bundlePath, fakeCert("a"))
				n.stub(test.stub, inRoot(test.body))
				if test.exit < 0 {
					n.killed = true
					_ = n.run("install-ca")
					n.killed = false
					n.stub(test.stub, "exit 1") // of the next run
				}
				if got := n.run("install-ca"); got.Exit != 1 {
					t.Errorf("%+v", got)
				}
				for at, to := range links {
					if got, err := os.Readlink(filepath.Join(n.root, "etc/ssl/certs", at)); err != nil || got != to {
						t.Errorf("%s leads to %q: %v", at, got, err)
					}
				}
				if _, err := os.Lstat(filepath.Join(n.root, "etc/ssl/certs.capi-proxy-patcher")); !os.IsNotExist(err) {
					t.Errorf("the copy is left: %v", err)
				}
				n.stub(test.stub, inRoot(remove+`cat "$R"/usr/local/share/ca-certificates/* "$R"/etc/ssl/certs/*.pem >"$R/etc/ssl/cert.pem" 2>/dev/null; :`))
				if got := n.run("install-ca"); got.Exit != 0 {
					t.Errorf("afterwards %+v", got)
				}
				if _, err := os.Lstat(filepath.Join(n.root, "etc/ssl/certs/dangling")); !os.IsNotExist(err) {
					t.Errorf("a link that the command has removed is back: %v", err)
				}
			})
		})
	}
}

// Without room for a copy nothing is touched: not the links, and no certificate is cut off.
func TestInstallCA_TouchesNothingWithoutRoom(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n.write("etc/os-release", "ID=flatcar\n")
		n.write("etc/ssl/certs/theirs.pem", fakeCert("theirs"))
		if err := os.Symlink("theirs.pem", filepath.Join(n.root, "etc/ssl/certs/11111111.0")); err != nil {
			t.Fatal(err)
		}
		n.stub("update-ca-certificates", `rm -f "`+n.root+`"/etc/ssl/certs/*.0`)
		n.stub("cp", "echo 'No space left on device' >&2; exit 1")
		n.write(bundlePath, fakeCert("a"))
		want := treeOutcome{
			Exit: 1, Calls: "cp -P ROOT/etc/ssl/certs/11111111.0 ROOT/etc/ssl/certs.capi-proxy-patcher\n",
			Stderr: "capi-proxy-patcher: cannot copy the links of ROOT/etc/ssl/certs to ROOT/etc/ssl/certs.capi-proxy-patcher: the disk may be full\n",
		}
		if diff := cmp.Diff(want, n.run("install-ca")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(n.root, "etc/ssl/certs/11111111.0")); err != nil {
			t.Error(err)
		}
	})
}

func TestInstallCA_SaysWhatItTrusts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare              func(n *tree)
		bundle, says, folder string
		calls                string
	}{
		"on a system that only its folders tell from Debian": {
			func(n *tree) {
				n.write("etc/pki/trust/anchors/other.pem", "other")
				n.write("usr/lib/os-release", "ID=odd\n")
				n.updates("update-ca-certificates", "etc/pki/trust/anchors", "etc/ssl/ca-bundle.pem")
			},
			fakeCert("a"), "", "etc/pki/trust/anchors", "update-ca-certificates \n",
		},
		"on a kin of Flatcar: /usr is an image, and certificates are read from /etc/ssl/certs": {
			func(n *tree) {
				n.write("etc/os-release", "ID=odd\n")
				n.write("usr/local", "a file: nothing can be made below it")
				n.updates("update-ca-certificates", "etc/ssl/certs", "etc/ssl/cert.pem")
			},
			fakeCert("a"), "", "etc/ssl/certs", "update-ca-certificates \n",
		},
		"and which certificates are in no bundle": {
			func(n *tree) {
				n.write("etc/os-release", "ID=rhel\n")
				n.stub("update-ca-trust", "") // a command that leaves out what is no CA
				n.write("etc/pki/tls/certs/ca-bundle.crt", "# x\n"+strings.TrimSuffix(fakeCert("b"), "\n")+fakeCert("z"))
			},
			fakeCert("a") + fakeCert("b") + fakeCert("c"),
			"capi-proxy-patcher: not in a bundle of this system: certificates 1 3 of ROOT/" + bundlePath + "\n",
			"etc/pki/ca-trust/source/anchors", "update-ca-trust extract\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachTree(t, func(n *tree) {
				test.prepare(n)
				n.write(bundlePath, test.bundle)
				said := test.says + "capi-proxy-patcher: trusting 1 certificates in ROOT/" + test.folder + "\n"
				for range 2 {
					if diff := cmp.Diff(treeOutcome{Stdout: said, Calls: test.calls}, n.run("install-ca")); diff != "" {
						n.t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}
