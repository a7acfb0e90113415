package clusters

import (
	"context"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Settings are those of a Cluster or of one of its pools, or why they cannot be used.
type Settings struct {
	// Object is the Cluster, or the pool that names its own proxy Secret.
	Object     *manifest.Object
	Resolution settings.Resolution
	Warnings   []finding.Finding
	// Err has findings. NotKnown says whether they are only that the values are not in the input.
	Err error
}

// Resolve returns the settings of a Cluster, then those of its pools that name their own proxy Secret.
func (m *Manifests) Resolve(ctx context.Context, c Cluster, resolver settings.Resolver) []Settings {
	of := func(o *manifest.Object, override string) Settings {
		resolution, err := resolver.Resolve(ctx, c.View, c.Settings.Options, override)
		warnings := resolution.Warnings
		if err == nil && override == "" {
			warnings = slices.Concat(warnings, resolution.ProxiedNodes(c.Settings.Options, m.Machines(c.Object)))
		}
		return Settings{Object: o, Resolution: resolution, Warnings: warnings, Err: err}
	}
	all := []Settings{of(c.Object, "")}
	for _, worker := range m.Workers(c.Object) {
		if pool := m.Pool(worker); pool.HasOwnSecret() {
			all = append(all, of(worker, pool.Override))
		}
	}
	for _, pool := range c.Settings.Pools {
		if pool.HasOwnSecret() {
			all = append(all, of(c.Object, pool.Override))
		}
	}
	return all
}

const useSecretFlag = "name a file that has them with --secret"

// NotKnown reports whether err says that the values of a proxy Secret are not known, and returns the note about it. The
// Secret is missing in the input, like one that another object makes in the cluster, or SOPS has encrypted it.
func NotKnown(err error) (note finding.Finding, is bool) {
	found := finding.Of(err)
	if !found.Has(contract.ReasonSettingsNotFound) {
		return note, false
	}
	note = found[0]
	note.Message = "values of the proxy Secret are not known and not checked: " + note.Message
	note.Advice = useSecretFlag
	return note, true
}

// isEncrypted reports whether SOPS has encrypted a value of a Secret.
func isEncrypted(o *manifest.Object) bool {
	for _, field := range []string{"data", "stringData"} {
		for _, value := range Dig(o.Value(), field) {
			if text, isText := value.(string); isText && strings.HasPrefix(text, "ENC[AES256_GCM,") {
				return true
			}
		}
	}
	return false
}

// encrypted is the finding about a proxy Secret whose values SOPS has encrypted.
func encrypted(o *manifest.Object) error {
	return finding.Errors{{
		Reason: contract.ReasonSettingsNotFound, Code: settings.CodeSecretNotFound,
		Place: finding.Place{Object: Place(o)}, Message: "its values are encrypted by SOPS", Advice: useSecretFlag,
	}}
}
