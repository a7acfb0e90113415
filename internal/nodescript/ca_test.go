package nodescript_test

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

		updateCerts = "update-ca-certificates"
		updateTrust = "update-ca-trust"
		rehash      = "rehash_ca_certificates.sh"
	)
	tests := map[string]struct {
		osRelease            string
		stub, call, dir, ext string
	}{
		"Debian":                        {"ID=debian\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"Ubuntu":                        {"NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"like Ubuntu":                   {"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"RHEL":                          {"ID=\"rhel\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Fedora":                        {"ID=fedora\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Rocky":                         {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Alma":                          {"ID=\"almalinux\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Oracle":                        {"ID=\"ol\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Amazon Linux 2":                {"ID=\"amzn\"\nID_LIKE=\"centos rhel fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Amazon Linux 2023":             {"ID=\"amzn\"\nID_LIKE=\"fedora\"\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Mariner":                       {"ID=mariner\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"Azure Linux":                   {"ID=azurelinux\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"SLES":                          {"ID=\"sles\"\nID_LIKE=\"suse\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"SLE Micro":                     {"ID=\"sl-micro\"\nID_LIKE=\"suse sle-micro\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"openSUSE":                      {"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", updateCerts, updateCerts + " ", suse, "crt"},
		"Photon":                        {"NAME=\"VMware Photon OS\"\nID=photon\n", rehash, rehash + " ", certs, "pem"},
		"Flatcar":                       {"ID=flatcar\nID_LIKE=coreos\n", updateCerts, updateCerts + " ", certs, "pem"},
		"unknown, with update-ca-trust": {"ID=odd\n", updateTrust, updateTrust + " extract", rhel, "crt"},
		"unknown, with rehash_ca_certificates.sh": {"ID=odd\n", rehash, rehash + " ", certs, "pem"},
		"unknown, with update-ca-certificates":    {"ID=odd\n", updateCerts, updateCerts + " --fresh", debian, "crt"},
		"no os-release":                           {"", updateTrust, updateTrust + " extract", rhel, "crt"},
		"os-release that is no shell":             {"ID=(\n", updateTrust, updateTrust + " extract", rhel, "crt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachShell(t, func(n *tree) {
				t := n.t
				if test.osRelease != "" {
					n.write("etc/os-release", test.osRelease)
				}
				n.stub(test.stub, "echo 'Updating certificates...'")
				n.write(bundlePath, "# Acme\n"+fakeCert("one")+"\n# Acme 2\n"+fakeCert("two"))
				want := outcome{
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
	for _, want := range []outcome{
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
	eachShell(t, func(n *tree) {
		t := n.t
		const dir = "etc/pki/ca-trust/source/anchors"
		n.write("etc/os-release", "ID=rhel\n")
		n.stub("update-ca-trust", "")
		n.write(bundlePath, fakeCert("a"))
		n.run("install-ca")
		n.write(bundlePath, "")
		n.stub("update-ca-trust", "exit 1")
		failed := outcome{
			Exit: 1, Calls: "update-ca-trust extract\n",
			Stderr: "capi-proxy-patcher: update-ca-trust extract does not work here: see the lines above\n",
		}
		for range 2 {
			if diff := cmp.Diff(failed, n.run("install-ca")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		n.remove("stubs/update-ca-trust")
		missing := outcome{
			Exit:   1,
			Stderr: "capi-proxy-patcher: update-ca-trust not found: add it to the image, or leave trust out of the annotation capi-proxy-patcher.io/targets\n",
		}
		if diff := cmp.Diff(missing, n.run("install-ca")); diff != "" {
			t.Errorf("without the command (-want +got):\n%s", diff)
		}
		n.stub("update-ca-trust", "")
		emptied(n, "update-ca-trust extract", dir)
	})
}

func TestInstallCA_DistinguishesSUSEFromDebianByItsFolders(t *testing.T) {
	t.Parallel()
	eachShell(t, func(n *tree) {
		t := n.t
		n.write("etc/pki/trust/anchors/other.pem", "other")
		n.write("usr/lib/os-release", "ID=odd\n")
		n.stub("update-ca-certificates", "")
		n.write(bundlePath, fakeCert("one"))
		n.run("install-ca")
		want := map[string]string{"other.pem": "other", "capi-proxy-patcher-1.crt": fakeCert("one")}
		if diff := cmp.Diff(want, n.files("etc/pki/trust/anchors")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
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
			eachShell(t, func(n *tree) {
				t := n.t
				n.write("etc/os-release", "ID=photon\n")
				n.stub("rehash_ca_certificates.sh", "")
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
	eachShell(t, func(n *tree) {
		t := n.t
		const dir = "usr/local/share/ca-certificates"
		n.write("etc/os-release", "ID=debian\n")
		n.stub("update-ca-certificates", "")
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
	eachShell(t, func(n *tree) {
		t := n.t
		n.write("etc/os-release", "ID=debian\n")
		n.stub("update-ca-certificates", "")
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
			eachShell(t, func(n *tree) {
				t := n.t
				// It would be an error with certificates.
				n.write("usr/local/share/ca-certificates/capi-proxy-patcher-1.crt", "old")
				n.write(bundlePath, bundle)
				want := outcome{Stdout: "capi-proxy-patcher: no certificates in ROOT/" + bundlePath + ", nothing to install\n"}
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
				debian(n)
				n.write("usr/local/share/ca-certificates", "x")
				n.write(bundlePath, fakeCert("a"))
			},
			"cannot create ROOT/usr/local/share/ca-certificates\n", false,
		},
		"a certificate that is a folder": {
			func(n *tree) {
				debian(n)
				n.write("usr/local/share/ca-certificates/capi-proxy-patcher-2.crt/x", "x")
				n.write(bundlePath, fakeCert("a")+fakeCert("b"))
			},
			"cannot write ROOT/usr/local/share/ca-certificates/capi-proxy-patcher-2.crt\n", false,
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
			eachShell(t, func(n *tree) {
				t := n.t
				test.prepare(n)
				want := outcome{Exit: 1, Stderr: "capi-proxy-patcher: " + test.stderr}
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
