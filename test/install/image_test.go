package install

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ocilayout"
)

const imageRevision = "0123456789abcdef0123456789abcdef01234567"

// buildImage builds an image of a small program, for two platforms, and returns the digest that is printed.
func buildImage(t *testing.T, out string, environment ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack/image/build.sh"), out)
	cmd.Env = append(append(os.Environ(), "VERSION="+releaseVersion, "REVISION="+imageRevision, "CREATED=1700000000",
		"PLATFORMS=linux/amd64,linux/arm64", "PACKAGE=./test/install/testdata/small"), environment...)
	cmd.Stderr = os.Stderr
	digest, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(digest))
}

// TestImage_IsOneStaticProgramForEachPlatform builds for somebody with other settings too, and where nothing can be pulled.
func TestImage_IsOneStaticProgramForEachPlatform(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	digest := buildImage(t, out)
	image, err := ocilayout.Read(filepath.Join(out, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if image.Digest != digest || len(image.Programs) != 2 {
		t.Errorf("image %s has %d programs; %s was printed", image.Digest, len(image.Programs), digest)
	}
	for i, want := range []struct {
		platform string
		machine  elf.Machine
	}{{"linux/amd64", elf.EM_X86_64}, {"linux/arm64", elf.EM_AARCH64}} {
		program := image.Programs[i]
		labels := program.Config.Labels
		if program.Platform != want.platform || program.Config.User != "65532:65532" ||
			!slices.Equal(program.Config.Entrypoint, []string{"/ko-app/small"}) ||
			labels["org.opencontainers.image.version"] != releaseVersion ||
			labels["org.opencontainers.image.revision"] != imageRevision {
			t.Errorf("%s: %s with %+v", want.platform, program.Platform, program.Config)
		}
		binary, err := elf.NewFile(bytes.NewReader(program.Content))
		if err != nil {
			t.Fatal(err)
		}
		interpreted := slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if binary.Machine != want.machine || interpreted {
			t.Errorf("%s: the program is for %s, or not static", want.platform, binary.Machine)
		}
	}
	again := buildImage(t, t.TempDir(), "TZ=Pacific/Apia", "GOFLAGS=-tags=other", "GOAMD64=v2", "GOOS=darwin",
		"HTTPS_PROXY=http://127.0.0.1:1", "LC_ALL=C")
	if again != digest {
		t.Errorf("digest %s, and then %s", digest, again)
	}
}
