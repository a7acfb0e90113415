package settings

import "testing"

func TestScope_HasClustersOfItsNamespaceAndFilter(t *testing.T) {
	t.Parallel()
	blue := map[string]string{"cluster.x-k8s.io/watch-filter": "blue", "a": "b"}
	for name, test := range map[string]struct {
		scope     Scope
		namespace string
		labels    map[string]string
		want      bool
	}{
		"everything has a filtered Cluster":   {Scope{}, "a", blue, true},
		"everything has one without a filter": {Scope{}, "a", nil, true},
		"the namespace":                       {Scope{Namespace: "a"}, "a", blue, true},
		"another namespace":                   {Scope{Namespace: "a"}, "b", blue, false},
		"the filter":                          {Scope{WatchFilter: "blue"}, "a", blue, true},
		"another filter":                      {Scope{WatchFilter: "green"}, "a", blue, false},
		"a part of the filter":                {Scope{WatchFilter: "blu"}, "a", blue, false},
		"no filter":                           {Scope{WatchFilter: "blue"}, "a", nil, false},
		"both":                                {Scope{"a", "blue"}, "a", blue, true},
		"the filter elsewhere":                {Scope{"a", "blue"}, "b", blue, false},
	} {
		if got := test.scope.Has(test.namespace, test.labels); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if test.want && !test.scope.HasNamespace(test.namespace) {
			t.Errorf("%s: not its namespace", name)
		}
	}
}
