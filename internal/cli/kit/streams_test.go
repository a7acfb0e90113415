package kit_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// TestUntilSignal_EndsWithASignal sends this process what ends a server.
func TestUntilSignal_EndsWithASignal(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx := kit.UntilSignal(t.Context())
		if err := syscall.Kill(os.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if t.Context().Err() != nil {
			t.Fatal("the test is over")
		}
	}
}
