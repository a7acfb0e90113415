package patch

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// Unit is a service of a node that gets the variables from a drop-in.
type Unit struct {
	// Target asks for the drop-in. It is the name of the unit without ".service", too.
	Target contract.Target
	// Starts reports that kubeadm starts the unit after the commands of a bootstrap spec, and that clients in it ask for
	// addresses of the node: it reads contract.PathNodeEnv, which it writes anew before each start. Other units run
	// already, and contract.PathSetup restarts them.
	Starts bool
	// Socket answers for gRPC requests of the CRI when the unit is healthy. A unit without one answers by HTTP, where its
	// configuration says.
	Socket string
}

// Units returns the services that get the variables, in the order in which they are restarted. The script knows them by
// name, and so do packages agent (how a service shows that it is healthy), kinds and plan (which hosts it asks).
func Units() []Unit {
	return []Unit{
		{Target: contract.TargetContainerd, Socket: "/run/containerd/containerd.sock"},
		{Target: contract.TargetKubelet, Starts: true},
	}
}

// Name is the name of the unit without ".service".
func (u Unit) Name() string { return string(u.Target) }

// DropIn is the path of its drop-in.
func (u Unit) DropIn() string { return systemd.DropInPath(u.Name()) }

// UnitNames returns the names of Units, without ".service".
func UnitNames() (names []string) {
	for _, u := range Units() {
		names = append(names, u.Name())
	}
	return names
}
