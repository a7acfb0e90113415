package nodeagent

import (
	"context"
	"errors"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Services are those of a node. They are connected to when they are needed. Every call is bounded in time, and ends
// with the context of New.
type Services struct {
	ctx        context.Context //nolint:containedctx // of the one apply that they serve
	root       string
	say        func(step string)
	connection *dbus.Conn
}

// New returns the services of the node whose root is a folder. say is told each step before it is done.
func New(ctx context.Context, root string, say func(step string)) *Services {
	return &Services{ctx: ctx, root: root, say: say}
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
func (s *Services) Trust() error { return s.script("installing the certificates", "install-ca") }

// script runs a verb of contract.PathSetup.
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
			err = answers(s.ctx, s.root, name)
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
