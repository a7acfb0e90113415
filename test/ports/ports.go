// Package ports finds ports for the servers of tests and measurements.
package ports

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// The ports are below those that the kernel gives to connections, which would take one that is not in use yet, or not
// while a server is stopped.
const first, count = 20000, 12767

// begin is where this process begins to look: those that start at the same time find different ports.
var begin, calls = rand.Int64N(count), atomic.Int64{} //nolint:gochecknoglobals,gosec // ports are those of a process

// Free returns a port of loopback at which nobody listens, another one with each call.
func Free(ctx context.Context) (int, error) {
	for range count {
		port := int(first + (begin+calls.Add(1))%count)
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue // that of another process
		}
		return port, listener.Close()
	}
	return 0, errors.New("finding a free port: all are in use")
}

// Address returns 127.0.0.1 with such a port.
func Address(ctx context.Context) (string, error) {
	port, err := Free(ctx)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
