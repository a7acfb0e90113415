package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A bus that accepts and says nothing, as one that hangs does.
func TestDial_WaitsForNoAnswerForever(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder := filepath.Join(root, "run/dbus")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "unix", filepath.Join(folder, "system_bus_socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if connection, err := dial(ctx, root); err == nil {
		connection.Close()
		t.Error("it is connected")
	}
}
