// Package publish publishes the values of Clusters beyond their nodes: package output makes them, and package publisher
// applies them.
package publish

import (
	"context"
	"maps"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/publisher"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// Capability implements kit.Capability, kit.Publisher and manager.Extension.
type Capability struct{}

// New returns the capability, and adds its names to those of the program.
func New() Capability {
	contract.Add(output.Names())
	return Capability{}
}

// AddFlags implements manager.Extension.
func (Capability) AddFlags(*cliflag.NamedFlagSets) {}

// Check implements manager.Extension.
func (Capability) Check() error { return nil }

// SetupWithManager implements manager.Extension.
func (Capability) SetupWithManager(_ context.Context, mgr ctrl.Manager, core manager.Core) (controller.Step, error) {
	outputs, err := publisher.New(publisher.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Memory: core.Memory,
		Applier: remote.NewApplier(remote.NewClusters(remote.Connect(mgr.GetAPIReader()), core.Now)),
		Scope:   core.Scope, Now: core.Now, Concurrency: core.Concurrency,
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is missing
	}
	return nil, outputs.SetupWithManager(mgr) //nolint:wrapcheck // it says what failed
}

// Commands implements kit.Capability.
func (Capability) Commands(kit.Streams, []kit.Capability) []*cobra.Command { return nil }

// Annotation implements kit.Publisher.
func (Capability) Annotation() string { return output.AnnotationPublish }

// Written implements kit.Publisher.
func (Capability) Written() []string { return output.AnnotationKeys() }

// Asked implements kit.Publisher.
func (Capability) Asked(annotations map[string]string, list string) (kit.Outputs, error) {
	read := output.Read
	if list != "" {
		read, annotations = output.ReadForRender, maps.Clone(annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[output.AnnotationPublish] = list
	}
	request, err := read(annotations)
	asked := kit.Outputs{
		Count: len(request.Outputs), KeepAnnotations: output.Kept(request, "").AnnotationsKept,
		Make: func(in kit.PublishInput) (kit.Published, error) {
			result, err := output.Of(request, output.Input(in))
			return published(result), err
		},
	}
	for _, o := range request.Outputs {
		asked.ForManagement = asked.ForManagement || !o.IsForWorkload()
		asked.ForWorkload = asked.ForWorkload || o.IsForWorkload()
		asked.ForRender = asked.ForRender || o.IsForWorkload() && !o.IsDelivered()
	}
	return asked, err
}

// published are the outputs of a result that have content.
func published(r output.Result) kit.Published {
	all := kit.Published{Annotations: r.Annotations, KeepAnnotations: r.AnnotationsKept, Findings: r.Findings}
	for _, secret := range r.Secrets {
		switch {
		case secret.Kept:
		case secret.Delivered == nil:
			labels := map[string]string{contract.LabelOutput: secret.Output}
			maps.Copy(labels, secret.Labels)
			all.Secrets = append(all.Secrets, kit.PublishedSecret{Name: secret.Name, Labels: labels, Data: secret.Data})
		default:
			for _, stream := range secret.Data { // one key
				all.Streams = append(all.Streams, stream)
			}
		}
	}
	for _, printed := range r.Printed {
		all.Objects = append(all.Objects, printed.Objects...)
	}
	return all
}
