package inplace

import (
	"context"
	"maps"
	"slices"
	"time"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// record writes contract.AnnotationUpdatedAt and, for other entries, contract.AnnotationUpdatedFiles for Machines that
// are behind, and whose nodes have the present files.
func record(ctx context.Context, p *controller.Pass, current []Member, updates map[string]plan.Update) error {
	behind := map[string]outdated.Lag{}
	for _, group := range p.Behind {
		for _, machine := range group.Machines {
			behind[machine.Name] = machine.Lag
		}
	}
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range current {
		update, annotations := updates[m.Secret], map[string]string{}
		if lag := behind[m.Machine]; lag != outdated.Current && !update.At.IsZero() {
			annotations[contract.AnnotationUpdatedAt] = update.At.UTC().Format(time.RFC3339)
		}
		i := slices.IndexFunc(configs, func(c bootstrapv1.KubeadmConfig) bool { return c.Name == m.Config })
		removed := configs[i].Annotations[contract.AnnotationUpdatedFiles] == contract.FilesRemovedValue
		switch lag := behind[m.Machine]; {
		case lag == outdated.OldEntries && update.Files != "":
			annotations[contract.AnnotationUpdatedFiles] = update.Files
		case lag == outdated.OldContent && removed: // it has those of its entries again
			annotations[contract.AnnotationUpdatedFiles] = ""
		}
		if err := annotate(ctx, p, &configs[i], annotations); err != nil {
			return err
		}
	}
	return nil
}

// annotate writes annotations of a KubeadmConfig, if they differ.
func annotate(ctx context.Context, p *controller.Pass, config *bootstrapv1.KubeadmConfig,
	annotations map[string]string,
) error {
	maps.DeleteFunc(annotations, func(key, value string) bool { return config.Annotations[key] == value })
	if len(annotations) == 0 {
		return nil
	}
	return p.Writer.Annotate(ctx, config.DeepCopy(), annotations) //nolint:wrapcheck // it says what it wrote
}

// recordRemoval writes that nodes of Machines have no files any more.
func recordRemoval(ctx context.Context, p *controller.Pass, restored []Member) error {
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	for _, m := range restored {
		i := slices.IndexFunc(configs, func(c bootstrapv1.KubeadmConfig) bool { return c.Name == m.Config })
		annotations := map[string]string{contract.AnnotationUpdatedAt: "", contract.AnnotationUpdatedFiles: ""}
		if patch.IsPatched(kinds.View(&configs[i])) {
			annotations[contract.AnnotationUpdatedFiles] = contract.FilesRemovedValue
		}
		if err := annotate(ctx, p, &configs[i], annotations); err != nil {
			return err
		}
	}
	return nil
}
