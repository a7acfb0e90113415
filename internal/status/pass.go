package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// Pass is what the last pass over a Cluster has used: the value of contract.AnnotationLastPass.
type Pass struct {
	// Lease is the Lease that the manager renews as long as it runs, as namespace/name, or "" without leader election.
	Lease string `json:"lease,omitempty"`
	// Secrets are the resourceVersions of the proxy Secrets that it has read, by namespace/name; "" stands for a Secret
	// that did not exist.
	Secrets map[string]string `json:"secrets"`
	// More counts the Secrets that have no room in the record.
	More int `json:"more,omitempty"`
}

// maxSecrets is how many Secrets a record names: their names fit into the annotations of an object.
const maxSecrets = 200

// Record returns the value of contract.AnnotationLastPass. The same pass makes the same text.
func (p Pass) Record() string {
	if more := len(p.Secrets) - maxSecrets; more > 0 {
		kept := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(p.Secrets))[:maxSecrets] {
			kept[name] = p.Secrets[name]
		}
		p.Secrets, p.More = kept, more
	}
	text, _ := json.Marshal(p) //nolint:errchkjson // strings
	return string(text)
}

// ParsePass reads what Record has written. Anybody who may write to the Cluster may have changed it.
func ParsePass(text string) (Pass, error) {
	var p Pass
	err := json.Unmarshal([]byte(text), &p)
	bad := err != nil || p.Secrets == nil || len(p.Secrets) > maxSecrets || p.Lease != "" && !isName(p.Lease)
	for name := range p.Secrets {
		bad = bad || !isName(name)
	}
	if bad {
		return Pass{}, fmt.Errorf("annotation %s has an unexpected format", contract.AnnotationLastPass)
	}
	return p, nil
}

// isName reports whether text can be namespace/name: others could not be asked for.
func isName(text string) bool {
	namespace, name, _ := strings.Cut(text, "/")
	return namespace != "" && name != "" && strings.Trim(namespace+name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" &&
		strings.Trim(name, ".") != "" && strings.Trim(namespace, ".") != ""
}

// Secret is a proxy Secret as it is now.
type Secret struct {
	// Version is its resourceVersion, "" if it does not exist.
	Version string
	// Labelled reports whether it has contract.LabelProxySecret.
	Labelled bool
	// Unknown is why it cannot be read, or "".
	Unknown string
}

// Lease is the Lease of a manager as it is now.
type Lease struct {
	// Holder is "" if no manager has it.
	Holder string
	// Renewed is when it was last renewed, and Duration for how long that counts.
	Renewed  time.Time
	Duration time.Duration
	// Unknown is why it cannot be read, or "".
	Unknown string
}

// Present has the objects that passes have used and that still exist, by namespace/name.
type Present struct {
	Secrets map[string]Secret
	Leases  map[string]Lease
	// Now is the time of the API server.
	Now time.Time
}

// Uses returns the Secrets and the Lease that prove whether the row is current. They are namespace/name; the Lease may
// be "".
func (r *Row) Uses() (secrets []string, lease string) {
	return slices.Sorted(maps.Keys(r.pass.Secrets)), r.pass.Lease
}

// Prove compares the objects that the last pass has used with those that exist, and marks the row as stale if one
// differs: then the row says nothing about the Machines.
func (r *Row) Prove(now Present) {
	if r.Stale = r.stale(now); r.Stale != "" && r.Paused {
		r.Stale = "the Cluster is paused: " + r.Stale
	}
	for name := range r.pass.Secrets {
		if secret := now.Secrets[name]; r.Warning == "" && secret.Version != "" && !secret.Labelled {
			r.Warning = string(proxyconfig.CodeUnlabelledSecret)
		}
	}
	if r.Stale == "" {
		return
	}
	for _, machines := range []*Machines{&r.ControlPlane, &r.Pools} {
		if machines.State != NotPatched {
			machines.State = Stale
		}
	}
}

// stale returns why nothing proves that the row is current, or "".
func (r *Row) stale(now Present) string {
	if r.unproven != "" {
		return r.unproven
	}
	for _, name := range slices.Sorted(maps.Keys(r.pass.Secrets)) {
		if why := changed(name, r.pass.Secrets[name], now.Secrets[name]); why != "" {
			return why
		}
	}
	if r.pass.Lease == "" {
		return "the manager runs without --leader-elect, so nothing shows whether it still runs"
	}
	lease := now.Leases[r.pass.Lease]
	switch age := now.Now.Sub(lease.Renewed); {
	case lease.Unknown != "":
		return "cannot read Lease " + r.pass.Lease + " of the manager: " + lease.Unknown
	case lease.Holder == "":
		return "no manager holds Lease " + r.pass.Lease
	case age > lease.Duration:
		return "no manager has renewed Lease " + r.pass.Lease + " for " + duration.HumanDuration(age)
	}
	return ""
}

// changed returns how a Secret differs from the version that a pass has used, or "".
func changed(name, used string, now Secret) string {
	switch {
	case now.Unknown != "":
		return "cannot read Secret " + name + ": " + now.Unknown
	case now.Version == used:
		return ""
	case now.Version == "":
		return "Secret " + name + " was deleted after the last pass"
	}
	verb := "changed"
	if used == "" {
		verb = "created"
	}
	text := "Secret " + name + " was " + verb + " after the last pass"
	if !now.Labelled {
		text += "; it has no label " + contract.LabelProxySecret +
			", so that takes up to 10 minutes (--sync-period) to take effect"
	}
	return text
}

// IsKnown reports whether a pass that reports a condition has compared all Machines that are patched with settings that
// can be used.
func IsKnown(status, reason string) bool {
	return status == string(metav1.ConditionTrue) || reason == contract.ReasonWaitingForRollout ||
		reason == contract.ReasonRemovalWaiting || isInPlace(reason)
}

func isInPlace(reason string) bool {
	return reason == contract.ReasonInPlaceProgressing || reason == contract.ReasonInPlaceFailed ||
		reason == contract.ReasonInPlaceUnknown
}
