// Package contest detects that another manager keeps reverting the controller's writes, and delays further writes with
// back-off.
package contest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
)

const (
	// limit is how often the same edits of an object are written before they count as reverted by another manager.
	limit = 3
	// window is the time within which these writes happen.
	window = 10 * time.Minute
	// firstDelay is the first delay after that, maxDelay the longest; each is twice the one before.
	firstDelay = 10 * time.Second
	maxDelay   = time.Hour
)

// Contests remembers which writes were reverted. It is forgotten with the process, which costs a few writes.
type Contests struct {
	known expiring.Map[Key, contest]
}

// Key names the written object: a bootstrap object by its UID, a generated Secret by its name, because deleting it
// reverts the write, too.
type Key struct {
	UID    types.UID
	Secret types.NamespacedName
}

// Digest identifies what is written to an object; zero for an object that needs no write.
type Digest [sha256.Size]byte

// contest is a series of equal writes to one object.
type contest struct {
	wrote Digest
	count int
	last  time.Time
	// rival is the manager that reverts them, as far as the API server has recorded it.
	rival string
}

// delay is how long to wait after the last write.
func (c contest) delay() time.Duration {
	if c.count < limit {
		return 0
	}
	return min(firstDelay<<min(c.count-limit, 10), maxDelay)
}

// find returns the contest about an object; its count is zero if there is none about such a write.
func (s *Contests) find(key Key, write Digest, now time.Time) contest {
	known, found := s.known.Get(key, now)
	if !found || write != (Digest{}) && known.wrote != write {
		return contest{}
	}
	return known
}

// Wrote records a write to an object, and the rival that has reverted the one before, if that is known.
func (s *Contests) Wrote(key Key, write Digest, now time.Time, rival string) {
	c := s.find(key, write, now)
	c.wrote, c.last = write, now
	c.count++
	if rival != "" {
		c.rival = rival
	}
	s.known.Put(key, c, now, now.Add(max(window, 2*c.delay()))) // a write that lasts that long is not contested
}

// DigestOf returns the digest of what is written, which is encoded as JSON; zero for nothing.
func DigestOf[T any](written []T) Digest {
	if len(written) == 0 {
		return Digest{}
	}
	text, err := json.Marshal(written)
	if err != nil {
		return Digest{}
	}
	return sha256.Sum256(text)
}

// DigestOfSecret returns the digest of what is written into a Secret.
func DigestOfSecret(secret *corev1.Secret) Digest {
	hash := sha256.New()
	for _, texts := range []map[string]string{secret.Labels, secret.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			hash.Write(fmt.Appendf(nil, "%q %q\n", key, texts[key]))
		}
		hash.Write([]byte("\n"))
	}
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		hash.Write(fmt.Appendf(nil, "%q %d\n", key, len(secret.Data[key])))
		hash.Write(secret.Data[key])
	}
	return Digest(hash.Sum(nil))
}

// Check reports whether a write to an object of a kind has to wait because earlier ones were reverted. The finding
// about it remains until a write lasts.
func (s *Contests) Check(kind string, object client.Object, key Key, write Digest, now time.Time) (
	out report.Outcome, waits bool,
) {
	c := s.find(key, write, now)
	if c.count < limit {
		return out, false
	}
	asItShouldBe := write == Digest{}
	delay := c.delay()
	if asItShouldBe {
		delay = firstDelay // a write that lasts that long is not contested
	}
	left := c.last.Add(delay).Sub(now)
	if asItShouldBe && left <= 0 {
		return out, false
	}
	rival := "another manager"
	if c.rival != "" {
		rival += ", " + c.rival + ","
	}
	advice := "Enable the webhooks, or keep it from managing files and commands"
	if key.Secret.Name != "" {
		advice = "Keep it from managing this Secret, which is generated"
	}
	out.Add(contract.ReasonContested, "%s %s: %s keeps reverting our changes; retrying with back-off up to one hour. %s",
		kind, klog.KObj(object), rival, advice)
	out.LookAgain(max(left, time.Second))
	return out, left > 0
}

// IsContested reports whether a write to an object has been reverted so often that whether it lasts has to be looked
// at.
func (s *Contests) IsContested(key Key, write Digest, now time.Time) bool {
	return s.find(key, write, now).count >= limit
}

// IsNext reports whether the next write would be the one from which on an object is contested.
func (s *Contests) IsNext(key Key, write Digest, now time.Time) bool {
	return s.find(key, write, now).count == limit-1
}
