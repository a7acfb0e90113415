package report

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// written remembers the condition that was last written to each Cluster until the cache has it: a pass that begins
// right after another one would write it again.
type written struct {
	mutex sync.Mutex
	last  map[types.UID]write
}

// write is a condition, and the version of the Cluster that has it.
type write struct {
	condition metav1.Condition
	version   string
}

// note remembers the condition of a version of a Cluster.
func (w *written) note(uid types.UID, version string, condition metav1.Condition) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.last == nil {
		w.last = map[types.UID]write{}
	}
	w.last[uid] = write{condition, version}
}

// latest returns the condition of a Cluster that has a condition at a version, nil for none: that one, or what was
// written to a later version.
func (w *written) latest(uid types.UID, version string, condition *metav1.Condition) *metav1.Condition {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	last, known := w.last[uid]
	if !known {
		return condition
	}
	if order, err := resourceversion.CompareResourceVersion(version, last.version); err != nil || order >= 0 {
		delete(w.last, uid)
		return condition
	}
	return &last.condition
}

func (w *written) forget(uid types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.last, uid)
}
