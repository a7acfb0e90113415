package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/expiring"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// contestLimit is how often the same edits of an object are written before somebody else is taken to undo them.
	contestLimit = 3
	// contestWindow is within which time they are.
	contestWindow = 10 * time.Minute
	// contestDelay is the first time to wait then, contestMaxDelay the longest; each is twice the one before.
	contestDelay    = 10 * time.Second
	contestMaxDelay = time.Hour
)

// contests remembers which writes did not last. It is forgotten with the process, which costs a few writes.
type contests struct {
	known expiring.Map[contestKey, contest]
}

// contestKey names what is written: a bootstrap object by its UID, a generated Secret by its name, because whoever
// deletes it undoes the write, too.
type contestKey struct {
	uid    types.UID
	secret types.NamespacedName
}

// digest stands for what is written to an object; zero for an object that is as it should be.
type digest [sha256.Size]byte

// contest is a series of writes of the same to one object.
type contest struct {
	wrote digest
	count int
	last  time.Time
	// rival is who undoes them, as far as the API server has noted it.
	rival string
}

// delay is how long to wait after the last write.
func (c contest) delay() time.Duration {
	if c.count < contestLimit {
		return 0
	}
	return min(contestDelay<<min(c.count-contestLimit, 10), contestMaxDelay)
}

// find returns the contest about an object; its count is zero if there is none about such a write.
func (s *contests) find(key contestKey, write digest, now time.Time) contest {
	known, found := s.known.Get(key, now)
	if !found || write != (digest{}) && known.wrote != write {
		return contest{}
	}
	return known
}

// wrote notes a write to an object, after a rival had undone the one before, if that is known.
func (s *contests) wrote(key contestKey, write digest, now time.Time, rival string) {
	c := s.find(key, write, now)
	c.wrote, c.last = write, now
	c.count++
	if rival != "" {
		c.rival = rival
	}
	s.known.Put(key, c, now, now.Add(max(contestWindow, 2*c.delay()))) // a write that lasts so long has lasted
}

// digestOf returns the digest of what is written, which is encoded as JSON; zero for nothing.
func digestOf[T any](written []T) digest {
	if len(written) == 0 {
		return digest{}
	}
	text, err := json.Marshal(written)
	if err != nil {
		return digest{}
	}
	return sha256.Sum256(text)
}

// contested reports whether a write to an object has to wait because earlier ones were undone. It says so in the
// condition, and goes on saying so until a write has lasted.
func (r *reconciliation) contested(object string, key contestKey, write digest) bool {
	now := r.Now()
	c := r.contests.find(key, write, now)
	if c.count < contestLimit {
		return false
	}
	asItShouldBe := write == digest{}
	delay := c.delay()
	if asItShouldBe {
		delay = contestDelay // a write that lasts so long has lasted
	}
	left := c.last.Add(delay).Sub(now)
	if asItShouldBe && left <= 0 {
		return false
	}
	rival := "another manager"
	if c.rival != "" {
		rival += ", " + c.rival + ","
	}
	advice := "Enable the webhooks, or keep it from managing files and commands"
	if key.secret.Name != "" {
		advice = "Keep it from managing this Secret, which is generated"
	}
	r.found.add(contract.ReasonContested, "%s: %s keeps reverting our changes; retrying with back-off up to one hour. %s", object, rival, advice)
	r.lookAgain(max(left, time.Second))
	return left > 0
}

// rival returns who else has written the lists of o last, if that begins to matter and the API server has noted it: a
// manager that owns no entry of a list, because it has emptied it, is not known.
func (r *reconciliation) rival(ctx context.Context, o bootstrapObject, edits []patch.Edit) string {
	if r.contests.find(contestKey{uid: o.object.GetUID()}, digestOf(edits), r.Now()).count != contestLimit-1 {
		return ""
	}
	live := &metav1.PartialObjectMetadata{}
	kind, err := r.Client.GroupVersionKindFor(o.object)
	if err != nil {
		return ""
	}
	live.SetGroupVersionKind(kind)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.object), live); err != nil {
		return ""
	}
	name, latest := "", time.Time{}
	for _, entry := range live.ManagedFields {
		if entry.Manager == contract.Name || entry.FieldsV1 == nil || entry.Time == nil || entry.Time.Before(&metav1.Time{Time: latest}) {
			continue
		}
		for _, list := range []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} {
			if strings.Contains(string(entry.FieldsV1.GetRawBytes()), fmt.Sprintf("%q", "f:"+string(list))) {
				name, latest = entry.Manager, entry.Time.Time
			}
		}
	}
	return name
}
