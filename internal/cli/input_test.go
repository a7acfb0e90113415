package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// endless is an input without an end that counts what is read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestInput_IsBounded gives the three commands inputs without an end, alone and behind a file, and files that are too
// large together.
func TestInput_IsBounded(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	half := filepath.Join(folder, "half.yaml")
	for _, name := range []string{half, filepath.Join(folder, "other.yaml")} {
		if err := os.WriteFile(name, bytes.Repeat([]byte("# comment line\n"), maxInput/15/2+10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"render", "lint", "explain"} {
		for _, tc := range []struct {
			name string
			args []string
			want string
			most int64 // of standard input, with what a reader may take ahead
		}{
			{"standard input", []string{"-f", "-"}, "standard input", maxInput + 1},
			{"a device", []string{"-f", "/dev/zero"}, "/dev/zero", 0},
			{"a Secret behind a file", []string{"-f", half, "--secret", "-"}, "standard input", maxInput / 2},
			{"a folder", []string{"-f", folder}, filepath.Join(folder, "other.yaml"), 0},
		} {
			in, stderr := &endless{}, &bytes.Buffer{}
			status := Main(t.Context(), append([]string{command}, tc.args...), Streams{In: in, Out: io.Discard, Err: stderr})
			want := "reading " + tc.want + ": the input is larger than 64 MiB in total; give fewer manifests at a time\n"
			if status != exitInput || !strings.HasSuffix(stderr.String(), want) || in.read > tc.most {
				t.Errorf("%s, %s: status %d, %d bytes read: %s", command, tc.name, status, in.read, stderr)
			}
		}
	}
}

// TestUntilSignal_EndsWithASignal sends this process what ends a server.
func TestUntilSignal_EndsWithASignal(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx := untilSignal(t.Context())
		if err := syscall.Kill(os.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if t.Context().Err() != nil {
			t.Fatal("the test is over")
		}
	}
}
