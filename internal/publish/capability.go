package publish

import (
	"maps"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Capability implements kit.Capability and kit.Publisher.
type Capability struct{}

// New returns the capability to publish values of Clusters.
func New() Capability { return Capability{} }

// Commands implements kit.Capability.
func (Capability) Commands(kit.Streams, []kit.Capability) []*cobra.Command { return nil }

// Written implements kit.Publisher.
func (Capability) Written() []string { return AnnotationKeys() }

// Asked implements kit.Publisher.
func (Capability) Asked(annotations map[string]string, printed bool) (kit.Outputs, error) {
	read := Read
	if printed {
		read = ReadForRender
	}
	request, err := read(annotations)
	asked := kit.Outputs{
		Count: len(request.Outputs), KeepAnnotations: Kept(request, "").AnnotationsKept,
		Make: func(in kit.PublishInput) (kit.Published, error) {
			result, err := Of(request, Input(in))
			return result.published(), err
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
func (r Result) published() kit.Published {
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
