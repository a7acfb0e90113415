// Package agent runs on a node: it carries out what package node decides, with the node's root as a folder, its
// systemd by D-Bus, and HTTP.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Options say where things are.
type Options struct {
	// Root is the folder that is the root of the node.
	Root string
	// From is the folder with the keys of a Secret of rollout InPlace as files. Empty removes the files of the product.
	From string
	// Endpoint is the URL that has to answer if the Secret names none. Empty asks none then.
	Endpoint string
	// State is a folder that remembers a version that was rolled back. Empty remembers nothing.
	State string
}

// Apply brings the node to the version in o.From, and writes each step with its time to log. With a turn, a node that
// has to change waits for it, as long as ctx lasts; what has begun ends. The error is for people, on one line; see
// node.Host.Apply for what it says about the node.
func Apply(ctx context.Context, o Options, turn *Turn, log io.Writer) error {
	version, err := o.version()
	if err != nil {
		return err
	}
	on, err := Open(o.Root)
	if err != nil {
		return err
	}
	memory := memory(o.State)
	tried, err := memory.recall(version)
	if err != nil {
		return err
	}
	lasting := context.WithoutCancel(ctx)
	steps := &steps{to: log}
	running := New(lasting, o.Root, on, steps.begin)
	defer running.Close()
	host, taken := node.Host{Files: on, Services: running, Say: steps.begin}, false
	if turn != nil {
		host.Turn = func() error {
			err := turn.Take(ctx)
			taken = err == nil
			return err
		}
	}
	err = host.Apply(version, tried)
	steps.end()
	if failed := (*node.RolledBackError)(nil); errors.As(err, &failed) && tried == nil {
		if remembering := memory.remember(version, failed.Cause); remembering != nil {
			err = fmt.Errorf("%w; and it will be tried again: %w", err, remembering)
		}
	}
	if err != nil && taken {
		turn.Fail(lasting, err)
	}
	return err
}

// DryRun writes what Apply would do.
func DryRun(o Options, out io.Writer) error {
	version, err := o.version()
	if err != nil {
		return err
	}
	on, err := Open(o.Root)
	if err != nil {
		return err
	}
	plan, err := node.Host{Files: on}.Plan(version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(plan.Lines(), "\n"))
	return err
}

// Check asks the readiness endpoints of the version in o.From, compares its variables with those that systemd gives to
// services, and reads what failed when the node was prepared. It writes what is as it should be to out; the error says
// all that is not.
func Check(ctx context.Context, o Options, out io.Writer) error {
	version, err := o.version()
	if err != nil {
		return err
	}
	on, err := Open(o.Root)
	if err != nil {
		return err
	}
	var good, bad []string
	if found := problems(on); found != "" {
		bad = append(bad, "when the node was prepared: "+found)
	}
	if err := check(ctx, on, version); err != nil {
		bad = append(bad, err.Error())
	} else {
		good = append(good, fmt.Sprintf("%d readiness endpoints answer\n", len(version.Endpoints())))
	}
	compared, err := units(ctx, o.Root, on, version)
	if err != nil {
		bad = append(bad, err.Error())
	} else if len(compared) > 0 {
		good = append(good, fmt.Sprintf("systemd gives the variables of %s to %s\n", contract.PathProxyEnv,
			strings.Join(compared, " and ")))
	}
	if _, err := io.WriteString(out, strings.Join(good, "")); err != nil {
		bad = append(bad, err.Error())
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

// version reads the mounted Secret, whose files are symbolic links.
func (o Options) version() (node.Version, error) {
	if o.From == "" {
		data, err := patch.NodeData(nil, patch.Recipe{})
		if err != nil {
			return node.Version{}, err
		}
		return node.NewVersion(data)
	}
	data := map[string][]byte{}
	for _, key := range []string{
		contract.KeyProxyEnv, contract.KeyTrustedCABundle, contract.KeySetup, contract.KeyReadiness, contract.KeyNodeFiles,
	} {
		file, err := os.Open(filepath.Join(o.From, key)) //nolint:gosec // a folder that the user names
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return node.Version{}, fmt.Errorf("reading the mounted Secret: %w", err)
		}
		data[key], err = ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return node.Version{}, fmt.Errorf("reading the mounted Secret: %w", err)
		}
	}
	if data[contract.KeyReadiness] == nil && o.Endpoint != "" {
		data[contract.KeyReadiness] = []byte(o.Endpoint)
	}
	return node.NewVersion(data)
}

// steps writes each step with how long it took.
type steps struct {
	to      io.Writer
	current string
	since   time.Time
}

func (s *steps) begin(step string) {
	s.end()
	s.current, s.since = step, time.Now() //nolint:forbidigo // how long a step takes, for people
}

func (s *steps) end() {
	if s.current != "" {
		_, _ = fmt.Fprintf(s.to, "%s: %s (%s)\n", contract.Name, s.current, time.Since(s.since).Round(time.Millisecond))
	}
	s.current = ""
}
