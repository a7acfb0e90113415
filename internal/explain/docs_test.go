package explain_test

import (
	"reflect"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

func TestNoProxyPage_HasEveryField(t *testing.T) {
	t.Parallel()
	tables.HasFields(t, "../../docs/no-proxy.md", reflect.TypeFor[explain.Report]())
}
