package report

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// settleTime is how long a condition must stay the same before it replaces one that says the same to the user. While a
// Cluster is created or rolled out, every pass has another message, and finds another object missing. After
// maxSettleTime the latest one is written all the same.
const (
	settleTime    = time.Second
	maxSettleTime = 10 * time.Second
)

// steady holds conditions back until they have stayed the same for settleTime.
type steady struct {
	mutex   sync.Mutex
	pending map[types.UID]pending
}

// pending is a condition that has not been written.
type pending struct {
	condition metav1.Condition
	// since is when a pass first had it, first when one first had another condition than the one that is written.
	since, first time.Time
}

// wait returns how long condition must still stay the same before it replaces previous, 0 if it may now.
func (s *steady) wait(uid types.UID, previous *metav1.Condition, condition metav1.Condition,
	now time.Time,
) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if previous == nil || !mayWait(*previous, condition) || same(*previous, condition) {
		delete(s.pending, uid)
		return 0
	}
	waiting, known := s.pending[uid]
	if !known {
		waiting.first = now
	}
	if !known || !same(waiting.condition, condition) {
		if s.pending == nil {
			s.pending = map[types.UID]pending{}
		}
		waiting.condition, waiting.since = condition, now
		s.pending[uid] = waiting
	}
	return max(0, min(waiting.since.Add(settleTime).Sub(now), waiting.first.Add(maxSettleTime).Sub(now)))
}

func (s *steady) forget(uid types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.pending, uid)
}

// mayWait reports whether a condition may replace the previous one later: it has its status, and its reason or another
// one by which something is not there yet and comes by itself. Whatever asks the user for something is written at once.
func mayWait(previous, next metav1.Condition) bool {
	return previous.Status == next.Status &&
		(previous.Reason == next.Reason || comesByItself(previous.Reason) && comesByItself(next.Reason))
}

func comesByItself(reason string) bool {
	return reason == contract.ReasonWaitingForObjects || reason == contract.ReasonWaitingForEndpoint
}

// same reports whether two conditions say the same about the same generation.
func same(a, b metav1.Condition) bool {
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}
