package report

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// settleTime is how long the message of a condition must stay the same before it replaces another one with the same
// reason. While a Cluster is created or rolled out, every pass has another message. After maxSettleTime the latest one
// is written all the same.
const (
	settleTime    = time.Second
	maxSettleTime = 10 * time.Second
)

// steady holds messages back until they have stayed the same for settleTime.
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

// wait returns how long condition must still stay the same before it replaces previous, 0 if it may now. A different
// status or reason never waits.
func (s *steady) wait(uid types.UID, previous *metav1.Condition, condition metav1.Condition,
	now time.Time,
) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if previous == nil || previous.Status != condition.Status || previous.Reason != condition.Reason ||
		previous.Message == condition.Message && previous.ObservedGeneration == condition.ObservedGeneration {
		delete(s.pending, uid)
		return 0
	}
	waiting, known := s.pending[uid]
	if !known {
		waiting.first = now
	}
	if !known || waiting.condition.Message != condition.Message ||
		waiting.condition.ObservedGeneration != condition.ObservedGeneration {
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
