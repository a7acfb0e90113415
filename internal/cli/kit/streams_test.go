package kit_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// TestUntilSignal_EndsWithASignal sends this process what ends a server.
func TestUntilSignal_EndsWithASignal(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sent) {
			continue // the tests run below nohup
		}
		ctx := kit.UntilSignal(t.Context(), syscall.SIGHUP)
		if err := syscall.Kill(os.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if t.Context().Err() != nil {
			t.Fatal("the test is over")
		}
	}
}
