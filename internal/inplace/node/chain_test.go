package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// TestApply_EndsAChainOfDisturbances disturbs one apply after the other on the same node: calls fail, commands fail for
// minutes, the process is killed, the power fails, people remove files. Each of the two states that an apply may end in
// has to be whole whenever it says so, with the trust store and with what services have read.
func TestApply_EndsAChainOfDisturbances(t *testing.T) {
	t.Parallel()
	full := data(t, "old", "CA1\n", "x\n")
	versions := []map[string][]byte{
		full, data(t, rude, "CA2\n", "y\n"), data(t, "old", "", "x\n"), withTargets(t, full),
		withTargets(t, full, contract.TargetContainerd), withTargets(t, full, contract.TargetTrust),
	}
	for chain := range uint64(20) {
		t.Run(fmt.Sprint("chain ", chain), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(chain, 48)) //nolint:gosec // the same chain in each run
			want := random.IntN(len(versions))
			d := newDisk(t, versions[want])
			could := map[int]bool{want: true} // what the node may go back to
			var (
				tried error // what the Pod of the version remembers
				told  []string
			)
			for step := range 300 {
				if random.IntN(3) == 0 { // another version
					want, tried = random.IntN(len(versions)), nil
				}
				what, removed := d.disturb(random)
				if removed { // by somebody else, so it is not there after a rollback
					could = map[int]bool{}
				}
				err, cut := d.apply(version(t, versions[want]), tried)
				told = append(told, fmt.Sprintf("%d: to version %d%s: %v", step, want, what, err))
				d.calls, d.failAt, d.cutAt, d.refuses = nil, 0, 0, nil
				failed := (*node.RolledBackError)(nil)
				switch isBack := errors.As(err, &failed); {
				case cut:
					tried, d.locked = nil, false
					if random.IntN(2) == 0 {
						d.reboot(random.IntN(2) == 0)
					}
				case isBack:
					tried = failed.Cause
				}
				switch {
				case !cut && err == nil:
					could = map[int]bool{want: true}
				case len(could) > 0 && (failed == nil || failed.Left != nil): // the journal may be all that is left
					could[want] = true
					continue
				}
				diffs := ""
				for at := range could {
					diff := d.differs(newDisk(t, versions[at]))
					if diffs += diff; diff != "" {
						delete(could, at)
					}
				}
				if len(could) == 0 && diffs != "" {
					t.Fatalf("(-want +got):\n%s%s", diffs, strings.Join(told[max(0, len(told)-8):], "\n"))
				}
			}
			// Nothing disturbs the end.
			d.brings(t, versions[3])
			d.inForce(t, versions[3])
		})
	}
}

// disturb chooses what happens during an apply, says it, and whether a file is gone.
func (d *disk) disturb(random *rand.Rand) (what string, removed bool) {
	switch random.IntN(6) { //nolint:mnd // kinds, the last of which is none
	case 0:
		d.failAt = 1 + random.IntN(90)
		return fmt.Sprint(", call fails: ", d.failAt), false
	case 1:
		d.cutAt = 1 + random.IntN(90)
		return fmt.Sprint(", cut: ", d.cutAt), false
	case 2:
		call := []string{"trust", "restart", "check", "addresses", "healthy"}[random.IntN(5)]
		after := random.IntN(3)
		d.refuses = func(at string, _, _ []byte) bool {
			if at == call {
				after--
			}
			return at == call && after < 0
		}
		return fmt.Sprint(", refused: ", call, " after ", after), false
	case 3: // the command of the trust store fails, and a service does not come back
		d.refuses = func(at string, _, ca []byte) bool {
			return at == "restart" || at == "trust" && !strings.Contains(string(ca), "CA")
		}
		return ", refused: restart, and to trust less", false
	case 4: // somebody removes the bundle
		if folder, found := d.find(contract.PathTrustedCA); found != nil && strings.Contains(string(found.content), systemd.EnvironmentFileHeader) {
			delete(folder.names, "trusted-ca.pem")
			delete(folder.durable, "trusted-ca.pem")
			return ", the bundle is removed", true
		}
	}
	return "", false
}
