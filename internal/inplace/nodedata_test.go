package inplace

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestNodeData_ListsFilesOfCompleteDataOnly(t *testing.T) {
	t.Parallel()
	options := settings.Options{Targets: contract.Targets()}
	for name, data := range map[string]map[string][]byte{
		"complete":   {contract.KeyProxyEnv: []byte("x"), contract.KeyTrustedCABundle: []byte("y"), contract.KeySetup: []byte("z")},
		"incomplete": {contract.KeyProxyEnv: []byte("x")},
	} {
		got, err := NodeData(options, data)
		if err != nil {
			t.Fatal(err)
		}
		if _, listed := got[contract.KeyNodeFiles]; listed != (name == "complete") || string(got[contract.KeyProxyEnv]) != "x" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
