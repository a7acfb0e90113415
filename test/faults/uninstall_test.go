package faults

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

func TestUninstall_LeavesNothing(t *testing.T) {
	f := newFleet(t, 3)
	t.Parallel()
	f.remember()
	webhooks, flags := f.serveWebhooks("testdata/webhooks")
	p := manager(t, f.ns, append(flags, noResync, "--leader-elect", "--leader-elect-namespace", f.ns)...)
	f.plant(enabled)
	f.eventuallyAsRendered()
	f.hasNoFinalizers()

	f.label(false)
	f.eventuallyReports(noCondition)
	f.uninstall(webhooks)
	p.stop()

	if problem := f.compare(f.untouched(), f.state()); problem != "" {
		t.Errorf("after the removal: %s", problem)
	}
	for _, object := range list(t, f.ns) {
		if _, generated := object.GetLabels()[contract.LabelGenerated]; generated {
			t.Errorf("generated Secret %s is left", object.GetName())
		}
	}
	f.deleteClusters()
}

// TestUninstall_DoesNotBlockTheDeletionOfClusters is about those who do not keep to the procedure.
func TestUninstall_DoesNotBlockTheDeletionOfClusters(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	f.create(enabled)
	p := manager(t, f.ns, noResync)
	f.eventuallyAsRendered()
	p.kill()
	f.hasNoFinalizers()
	f.deleteClusters()
}

// hasNoFinalizers fails if an object of the namespace has one: the user has set none.
func (f *fleet) hasNoFinalizers() {
	f.t.Helper()
	objects := list(f.t, f.ns)
	if len(objects) == 0 {
		f.t.Error("the namespace has no objects")
	}
	for _, object := range objects {
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			f.t.Errorf("%s %s has finalizers %v", object.GetKind(), object.GetName(), finalizers)
		}
	}
}

// deleteClusters deletes everything and fails if something is left.
func (f *fleet) deleteClusters() {
	f.t.Helper()
	f.hasNoFinalizers()
	for _, object := range list(f.t, f.ns) {
		if err := shared.client.Delete(f.t.Context(), &object); err != nil {
			f.t.Errorf("deleting %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range list(f.t, f.ns) {
		f.t.Errorf("%s %s cannot be deleted", object.GetKind(), object.GetName())
	}
}
