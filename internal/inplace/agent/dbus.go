package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// connectLimit is how long a connection to systemd may take.
	connectLimit = 10 * time.Second
	// jobLimit is how long systemd may take for one job. Its own limit for a service is 90 s by default.
	jobLimit = 2 * time.Minute
	// scriptLimit is how long contract.PathSetup may take.
	scriptLimit = time.Minute
	// service ends the name of a unit.
	service = ".service"
)

// dial returns a connection to the systemd of a node, which ends with ctx: by the bus, or else directly.
func dial(ctx context.Context, root string) (*dbus.Conn, error) {
	connection, err := connect(ctx, filepath.Join(root, "/run/dbus/system_bus_socket"), (*godbus.Conn).Hello)
	if err != nil {
		connection, err = connect(ctx, filepath.Join(root, "/run/systemd/private"), func(*godbus.Conn) error { return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to systemd: %w", err)
	}
	return connection, nil
}

func connect(ctx context.Context, socket string, greet func(*godbus.Conn) error) (*dbus.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(connectLimit, cancel).Stop() // until then; what has been made lasts
	return dbus.NewConnection(func() (*godbus.Conn, error) {
		one, err := godbus.Dial("unix:path="+godbus.EscapeBusAddressValue(socket), godbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err = one.Auth(nil); err == nil {
			err = greet(one)
		}
		if err != nil {
			return nil, errors.Join(err, one.Close())
		}
		return one, nil
	})
}

// reload makes systemd read its units again.
func reload(ctx context.Context, connection *dbus.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	if err := connection.ReloadContext(ctx); err != nil {
		return fmt.Errorf("reloading systemd: %w", err)
	}
	return nil
}

// restart restarts a service that is not stopped, and reports whether it did.
func restart(ctx context.Context, connection *dbus.Conn, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	state, err := connection.GetUnitPropertyContext(ctx, name+service, "ActiveState")
	if err != nil {
		return false, fmt.Errorf("asking systemd for %s: %w", name, err)
	}
	if state.Value.Value() == "inactive" {
		return false, nil
	}
	return true, job(ctx, "restarting "+name, name, func(result chan<- string) error {
		_, err := connection.RestartUnitContext(ctx, name+service, "replace", result)
		return err
	})
}

// script runs a verb of patch.Setup in a transient unit of the host's. It is the script of this program, and not what
// is at contract.PathSetup. systemd reads two dollar signs as one (systemd.service(5)).
func script(ctx context.Context, connection *dbus.Conn, what, verb string) error {
	return command(ctx, connection, what, contract.Name+"-"+verb+service,
		[]string{"/bin/sh", "-c", strings.ReplaceAll(patch.Setup(), "$", "$$"), contract.PathSetup, verb})
}

// command runs a command in a transient unit of the host's.
func command(ctx context.Context, connection *dbus.Conn, what, unit string, args []string,
	more ...dbus.Property,
) error {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	forget := func() { _ = connection.ResetFailedUnitContext(ctx, unit) } // there is none, as a rule
	forget()
	defer forget()
	return job(ctx, what, unit, func(result chan<- string) error {
		_, err := connection.StartTransientUnitContext(ctx, unit, "replace", append([]dbus.Property{
			dbus.PropDescription(contract.Name + ": " + what),
			dbus.PropType("oneshot"),
			dbus.PropExecStart(args, false),
			{Name: "TimeoutStartUSec", Value: godbus.MakeVariant(uint64(scriptLimit.Microseconds()))}, //nolint:gosec // a constant
		}, more...), result)
		return err
	})
}

// mainProcess returns the command line of a service that runs, and whether it does not run and stays so.
func mainProcess(ctx context.Context, connection *dbus.Conn, on Files, name string) (
	args []string, stopped bool, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	properties, err := connection.GetAllPropertiesContext(ctx, name+service)
	if err != nil {
		return nil, false, fmt.Errorf("asking systemd for %s: %w", name, err)
	}
	if properties["ActiveState"] == "inactive" {
		return nil, true, nil
	}
	id, _ := properties["MainPID"].(uint32)
	f, err := on.Read(fmt.Sprintf("/proc/%d/cmdline", id))
	if err != nil {
		return nil, false, nil // it does not run, or hides itself
	}
	return strings.Split(strings.TrimSuffix(string(f.Content), "\x00"), "\x00"), false, nil
}

// job waits for the end of a job of systemd's.
func job(ctx context.Context, what, unit string, start func(result chan<- string) error) error {
	result := make(chan string, 1)
	if err := start(result); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case end := <-result:
		if end != "done" {
			return fmt.Errorf("%s: the job of systemd ended with %q: see journalctl -u %s on the node", what, end, unit)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: the job of systemd has not ended after %s: see journalctl -u %s on the node", what, jobLimit,
			unit)
	}
}
