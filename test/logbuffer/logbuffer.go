// Package logbuffer keeps the log of a program in memory, for tests that read it while the program writes.
package logbuffer

import (
	"bytes"
	"sync"
)

// Buffer is a log that several goroutines may write and read. The zero value is empty.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write adds to the log. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
