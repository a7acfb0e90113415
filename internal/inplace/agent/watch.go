package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// WatchInterval is the time between two comparisons.
const WatchInterval = time.Minute

// Watch compares the files of the node with the version in o.From, ends the node's turn, if it has one, and compares
// again at every interval. It returns nil when ctx ends, and an error that names the paths as soon as files differ.
//
// That it runs at all is a part of the proof: the kubelet has started it, from an image that containerd has pulled with
// the new files.
func Watch(ctx context.Context, o Options, turn *Turn, interval time.Duration) error {
	on, err := Open(o.Root)
	if err != nil {
		return err
	}
	version, err := o.version()
	if err != nil {
		return err
	}
	host := node.Host{Files: on}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		drifted, err := host.Drift(version)
		if err != nil {
			return err
		}
		if len(drifted) > 0 {
			return errors.New("not as in the mounted Secret: " + strings.Join(drifted, ", "))
		}
		if turn != nil {
			if err := turn.End(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			turn = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
