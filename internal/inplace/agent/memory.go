package agent

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// memory is a folder, for root only, that remembers a version that was rolled back, by its digest, and why: without it
// every restart of a container would restart containerd again.
type memory string

// maxCause is how much of a cause is recalled, in bytes.
const maxCause = 1024

func (m memory) file() string { return filepath.Join(string(m), "failed") }

// recall returns why a version was rolled back, or nil.
func (m memory) recall(v node.Version) (tried, err error) {
	if m == "" {
		return nil, nil
	}
	text, err := os.ReadFile(m.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was tried: %w", err)
	}
	digest := sha256.Sum256(v.Bytes())
	if cause, same := bytes.CutPrefix(text, digest[:]); same {
		return errors.New(finding.Line(string(cause), maxCause)), nil
	}
	return nil, nil
}

func (m memory) remember(v node.Version, cause error) error {
	if m == "" {
		return nil
	}
	digest := sha256.Sum256(v.Bytes())
	temporary := m.file() + ".new"
	err := os.WriteFile(temporary, append(digest[:], cause.Error()...), 0o600)
	if err == nil {
		err = os.Rename(temporary, m.file())
	}
	if err != nil {
		return fmt.Errorf("remembering what was tried: %w", err)
	}
	return nil
}
