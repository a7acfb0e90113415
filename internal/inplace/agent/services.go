package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// Services are those of a node. They are connected to when they are needed. Every call is bounded in time, and ends
// with the context of New.
type Services struct {
	ctx        context.Context //nolint:containedctx // of the one apply that they serve
	root       string
	files      Files
	say        func(step string)
	connection *dbus.Conn
}

// New returns the services of the node whose root is a folder, with its files. say reports each step before it is done.
func New(ctx context.Context, root string, on Files, say func(step string)) *Services {
	return &Services{ctx: ctx, root: root, files: on, say: say}
}

// Close ends the connection.
func (s *Services) Close() {
	if s.connection != nil {
		s.connection.Close()
	}
}

// Ready implements node.Services.
func (s *Services) Ready() (err error) {
	if s.connection == nil || !s.connection.Connected() {
		s.connection, err = dial(s.ctx, s.root)
	}
	return err
}

// OwnAddresses implements node.Services.
func (s *Services) OwnAddresses() error {
	return s.script("adding the node's own addresses", "own-addresses")
}

// Trust implements node.Services.
func (s *Services) Trust() error { return s.script("installing the certificates", "certificates") }

// script runs a verb of patch.Setup.
func (s *Services) script(what, verb string) error {
	if err := s.Ready(); err != nil {
		return err
	}
	return script(s.ctx, s.connection, what, verb)
}

// Restart implements node.Services. A service that is stopped stays stopped.
func (s *Services) Restart(names []string) error {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := reload(s.ctx, s.connection); err != nil {
		return err
	}
	var failed []string
	for _, name := range names {
		restarted, err := restart(s.ctx, s.connection, name)
		if err == nil && restarted {
			s.say("waiting until " + name + " answers")
			err = answers(s.ctx, s.root, name, s.healthz(name))
		}
		if err != nil {
			failed = append(failed, err.Error())
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

// healthz returns where kubelet reports its health, "" if it does not.
func (s *Services) healthz(name string) string {
	args, _, _ := mainProcess(s.ctx, s.connection, s.files, name) // without, it is where kubeadm has it
	return healthzOf(s.files, args)
}

// Check implements node.Services.
func (s *Services) Check(v node.Version) error { return check(s.ctx, s.files, v) }

// Healthy implements node.Services.
func (s *Services) Healthy(want node.Version, services, reads []string) error {
	var failed []string
	for _, name := range services {
		if err := s.healthy(name); err != nil {
			failed = append(failed, err.Error())
		}
	}
	read := after(s.files, want)
	for _, name := range reads {
		for _, other := range others(read, environmentOf(unitFiles(s.files, want, name), read), want) {
			failed = append(failed, name+" would have other values than those of the proxy Secret: "+other)
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

// healthy fails if a service would not come back from a restart.
func (s *Services) healthy(name string) error {
	args, stopped, err := mainProcess(s.ctx, s.connection, s.files, name)
	if err != nil || stopped {
		return err
	}
	try, done := context.WithTimeout(s.ctx, healthTry)
	defer done()
	if err := asked(s.root, name, healthzOf(s.files, args))(try); err != nil {
		return fmt.Errorf("%s does not answer before anything is changed: %w: see journalctl -u %[1]s on the node", name, err)
	}
	if socketOf(name) == "" || len(args) == 0 || !path.IsAbs(args[0]) {
		return nil
	}
	const what, unit = "loading the configuration of containerd", contract.Name + "-containerd-config" + service
	err = command(s.ctx, s.connection, what, unit,
		append(slices.Clone(args), "config", "dump"), dbus.Property{
			Name: "StandardOutput", Value: godbus.MakeVariant("null"), // it may hold credentials
		})
	if err != nil {
		return fmt.Errorf("containerd would not start again: %w", err)
	}
	return nil
}
