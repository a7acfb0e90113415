package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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
	mutex sync.Mutex
	byUID map[types.UID]*contest
}

// contest is a series of writes of the same edits to one object.
type contest struct {
	edits [sha256.Size]byte
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

// over reports whether the last write has lasted.
func (c contest) over(now time.Time) bool { return now.Sub(c.last) > max(contestWindow, 2*c.delay()) }

// find returns the contest about an object; its count is zero if there is none. edits may be nil, for an object that is
// as it should be.
func (s *contests) find(uid types.UID, edits []patch.Edit, now time.Time) contest {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known := s.byUID[uid]
	if known == nil || known.over(now) || len(edits) > 0 && known.edits != digest(edits) {
		return contest{}
	}
	return *known
}

// wrote notes that edits of an object were written, after a rival had undone them, if that is known.
func (s *contests) wrote(uid types.UID, edits []patch.Edit, now time.Time, rival string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for other, c := range s.byUID {
		if c.over(now) {
			delete(s.byUID, other)
		}
	}
	if s.byUID == nil {
		s.byUID = map[types.UID]*contest{}
	}
	known, sum := s.byUID[uid], digest(edits)
	if known == nil || known.edits != sum {
		known = &contest{edits: sum}
		s.byUID[uid] = known
	}
	known.count++
	known.last = now
	if rival != "" {
		known.rival = rival
	}
}

func digest(edits []patch.Edit) [sha256.Size]byte {
	text, err := json.Marshal(edits)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(text)
}

// contested reports whether a write of edits has to wait because earlier ones were undone. It says so in the condition,
// and goes on saying so until a write has lasted.
func (r *reconciliation) contested(o bootstrapObject, edits []patch.Edit) bool {
	now := r.Now()
	c := r.contests.find(o.object.GetUID(), edits, now)
	if c.count < contestLimit {
		return false
	}
	delay := c.delay()
	if len(edits) == 0 {
		delay = contestDelay // a write that lasts so long has lasted
	}
	left := c.last.Add(delay).Sub(now)
	if len(edits) == 0 && left <= 0 {
		return false
	}
	rival := "another manager"
	if c.rival != "" {
		rival += ", " + c.rival + ","
	}
	r.found.add(contract.ReasonContested, "%s: %s undoes what is written again and again; it is written less and less often, once an hour at least. "+
		"Run the webhooks, or keep the other from writing files and commands", o, rival)
	r.lookAgain(max(left, time.Second))
	return left > 0
}

// rival returns who else has written the lists of o last, if that begins to matter and the API server has noted it: a
// manager that owns no entry of a list, because it has emptied it, is not known.
func (r *reconciliation) rival(ctx context.Context, o bootstrapObject, edits []patch.Edit) string {
	if r.contests.find(o.object.GetUID(), edits, r.Now()).count != contestLimit-1 {
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
