package agent

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// memory remembers a version that was rolled back, and why, in a folder: without it every restart of a container would
// restart containerd again. It holds a keyed digest of the version, and nothing of it.
type memory struct{ folder string }

const (
	saltLength = 16
	// maxCause is how much of a cause is recalled, in bytes.
	maxCause = 1024
)

func (m memory) file() string { return filepath.Join(m.folder, "failed") }

// recall returns why a version was rolled back, or nil.
func (m memory) recall(v node.Version) (tried, err error) {
	if m.folder == "" {
		return nil, nil
	}
	text, err := os.ReadFile(m.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was tried: %w", err)
	}
	const header = saltLength + sha256.Size
	if len(text) < header || !hmac.Equal(text[saltLength:header], digest(text[:saltLength], v)) {
		return nil, nil
	}
	return errors.New(finding.Line(string(text[header:]), maxCause)), nil
}

func (m memory) remember(v node.Version, cause error) error {
	if m.folder == "" {
		return nil
	}
	salt := make([]byte, saltLength)
	_, _ = rand.Read(salt) // it never fails
	text := bytes.Join([][]byte{salt, digest(salt, v), []byte(cause.Error())}, nil)
	temporary := m.file() + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return fmt.Errorf("remembering what was tried: %w", err)
	}
	if err := os.Rename(temporary, m.file()); err != nil {
		return fmt.Errorf("remembering what was tried: %w", err)
	}
	return nil
}

func digest(salt []byte, v node.Version) []byte {
	hash := hmac.New(sha256.New, salt)
	hash.Write(v.Bytes())
	return hash.Sum(nil)
}
