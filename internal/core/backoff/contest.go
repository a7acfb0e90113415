package backoff

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

const (
	// limit is how many writes of the same bytes within delay are contested.
	limit = 3
	// delay is the time between two writes of the same bytes once they are contested. A write that lasts that long ends
	// the contest.
	delay = time.Minute
)

// volatile matches what differs between two writes of the same meaning: versions and times.
var volatile = regexp.MustCompile(`"(resourceVersion|uid)":"[^"]*"|"path":"/metadata/resourceVersion"[^}]*|` +
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// content is what is written to an object, by which verb. That of a status is left out: a condition that comes back
// after another one was reverted by nobody.
type content struct {
	object object
	verb   string
	bytes  [sha256.Size]byte
}

// writes are those of the same bytes to an object.
type writes struct {
	bytes       [sha256.Size]byte
	count       int
	first, last time.Time
	version     string
	rival       string
}

// contests are the writes for a Cluster that asks for the same. A user who sets the label, removes it and sets it again
// makes us repeat writes that nobody has reverted.
type contests struct {
	desired string
	writes  map[content]writes
}

// of returns the contests of a Cluster. m is locked.
func (m *memory) of(cluster types.NamespacedName) *contests {
	stored, _ := m.contests.Get(cluster)
	all, known := stored.(*contests)
	if !known {
		all = &contests{writes: map[content]writes{}}
	}
	m.contests.Set(cluster, all, 2*delay)
	return all
}

// before returns the writes before one of written at a time.
func (m *memory) before(cluster types.NamespacedName, key content, written [sha256.Size]byte, now time.Time) writes {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	one := m.of(cluster).writes[key]
	if one.bytes != written || now.Sub(one.last) >= 2*delay || one.count < limit && now.Sub(one.first) >= delay {
		return writes{bytes: written, first: now}
	}
	return one
}

func (w writes) isContested(now time.Time) bool { return w.count >= limit && now.Sub(w.last) < delay }

// count adds a write to those before it, and forgets old ones.
func (m *memory) count(cluster types.NamespacedName, key content, one writes, now time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	one.count, one.last = one.count+1, now
	all := m.of(cluster).writes
	all[key] = one
	maps.DeleteFunc(all, func(_ content, w writes) bool { return now.Sub(w.last) >= 2*delay })
}

// Contested returns a finding for each object of a Cluster of which a write is contested, and when the next pass is
// due; zero for none.
func (c *Client) Contested(cluster types.NamespacedName) (found []finding.Finding, again time.Duration) {
	c.memory.mutex.Lock()
	defer c.memory.mutex.Unlock()
	var messages []string
	now := c.memory.now()
	for key, one := range c.memory.of(cluster).writes {
		if one.isContested(now) {
			messages = append(messages, message(key.object, one.rival))
			left := one.last.Add(delay).Sub(now)
			again = min(cmp.Or(again, left), left)
		}
	}
	slices.Sort(messages)
	for _, text := range slices.Compact(messages) {
		found = append(found, finding.Finding{Reason: contract.ReasonContested, Message: text})
	}
	return found, again
}

func message(o object, rival string) string {
	if rival != "" {
		rival = ", " + rival + ","
	}
	advice := "keep it from changing our labels, annotations and conditions"
	switch {
	case o.kind.Kind == "Secret":
		advice = "keep it from managing this Secret, which is generated"
	case strings.HasPrefix(o.kind.Kind, "Kubeadm"):
		advice = "enable the webhooks, or keep it from managing files and commands"
	}
	return fmt.Sprintf("%s: another manager%s keeps reverting our changes, which are repeated once a minute; %s", o,
		rival, advice)
}
