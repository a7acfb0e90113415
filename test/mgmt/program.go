package mgmt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the program of the repository at root into a folder, with flags of go build, and returns its path.
func Build(ctx context.Context, root, dir string, flags ...string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "capi-proxy-patcher"))
	if err != nil {
		return "", fmt.Errorf("building the program: %w", err)
	}
	args := append(append([]string{"build", "-trimpath", "-o", binary}, flags...), "./cmd/capi-proxy-patcher")
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the caller names flags of go build
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
