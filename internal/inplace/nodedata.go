package inplace

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// NodeData returns what running nodes get of the data of a generated Secret: its files, and the list of them for the
// targets of a Cluster. Data that is not complete stays as it is. Its errors are for the user.
func NodeData(options settings.Options, data map[string][]byte) (map[string][]byte, error) {
	if _, complete := data[contract.KeySetup]; !complete {
		return data, nil
	}
	recipe, err := plan.Recipe(options, patch.OutputVersion, patch.HasOnlyCertificates(data), "")
	if err != nil {
		return nil, err
	}
	return patch.NodeData(data, recipe)
}

// filesOf returns patch.FilesDigest of the files that NodeData lists.
func filesOf(options settings.Options, data map[string][]byte) (string, error) {
	recipe, err := plan.Recipe(options, patch.OutputVersion, patch.HasOnlyCertificates(data), "")
	return patch.FilesDigest(recipe), err
}
