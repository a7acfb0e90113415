package envtest

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// grant is one right, as a rule of RBAC gives it. A subresource is part of the resource, after a slash.
type grant struct{ verb, group, resource string }

// grantOf returns the right that a request needs.
func grantOf(r *http.Request) (grant, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var g grant
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		g.group, parts = parts[1], parts[3:]
	default:
		return g, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	g.resource = parts[0]
	if len(parts) > 2 {
		g.resource += "/" + parts[2]
	}
	switch named := len(parts) > 1; {
	case r.URL.Query().Get("watch") != "":
		g.verb = "watch"
	case r.Method == http.MethodGet && named:
		g.verb = "get"
	case r.Method == http.MethodGet:
		g.verb = "list"
	default:
		g.verb = map[string]string{
			http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
		}[r.Method]
	}
	return g, true
}

// granted returns the rights of the manager's ClusterRole.
func granted() ([]grant, error) {
	text, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		return nil, err
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(text, &role); err != nil {
		return nil, err
	}
	var grants []grant
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					grants = append(grants, grant{verb, group, resource})
				}
			}
		}
	}
	return grants, nil
}

// rare are rights for reads that only a moment needs: of what a cache does not have yet, for which an object has to be
// milliseconds old, of who keeps reverting an object, which a test sees for control planes, and of an inventory of clusterctl,
// which this suite does not have.
func rare() []grant {
	return []grant{
		{"get", "bootstrap.cluster.x-k8s.io", "kubeadmconfigs"},         // reconcile.Writer
		{"get", "bootstrap.cluster.x-k8s.io", "kubeadmconfigtemplates"}, // reconcile.Writer
		{"get", "cluster.x-k8s.io", "machinedeployments"},               // webhook.Webhook
		{"list", "clusterctl.cluster.x-k8s.io", "providers"},            // manager.New
	}
}

// unused returns the rights that were granted and that no request needed. Whoever watches needs to list as well: API
// servers that do not stream lists are asked for them.
func unused(grants []grant, used map[grant]bool) []grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g grant) bool {
		watches := g.verb == "list" && used[grant{"watch", g.group, g.resource}]
		if g.resource != "*" {
			return used[g] || watches || slices.Contains(rare(), g)
		}
		for needed := range used {
			if needed.verb == g.verb && needed.group == g.group {
				return true
			}
		}
		return false
	})
}

// checkGrants fails if all tests have run and the manager has not needed all that config/rbac grants it.
func checkGrants() error {
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	grants, err := granted()
	if err != nil {
		return err
	}
	shared.requests.mu.Lock()
	defer shared.requests.mu.Unlock()
	if left := unused(grants, shared.requests.used); len(left) > 0 {
		return fmt.Errorf("config/rbac/role.yaml grants what the manager never needed: %+v", left)
	}
	return nil
}

func TestGrants_AreReadFromRequests(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]grant{
		"GET /api/v1/namespaces":                                                       {"list", "", "namespaces"},
		"GET /api/v1/namespaces/a":                                                     {"get", "", "namespaces"},
		"GET /api/v1/namespaces/a/secrets?watch=true":                                  {"watch", "", "secrets"},
		"DELETE /api/v1/namespaces/a/secrets/b":                                        {"delete", "", "secrets"},
		"PATCH /apis/cluster.x-k8s.io/v1beta2/namespaces/a/clusters/b/status":          {"patch", "cluster.x-k8s.io", "clusters/status"},
		"POST /apis/events.k8s.io/v1/namespaces/a/events":                              {"create", "events.k8s.io", "events"},
		"GET /apis/infrastructure.cluster.x-k8s.io/v1/namespaces/a/dockerclusters/b":   {"get", "infrastructure.cluster.x-k8s.io", "dockerclusters"},
		"GET /apis/cluster.x-k8s.io/v1beta2/machines?labelSelector=a&limit=5&watch=1":  {"watch", "cluster.x-k8s.io", "machines"},
		"PUT /apis/bootstrap.cluster.x-k8s.io/v1beta2/namespaces/a/kubeadmconfigs/b-c": {"update", "bootstrap.cluster.x-k8s.io", "kubeadmconfigs"},
	} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got, is := grantOf(r); got != want || !is {
			t.Errorf("%s needs %+v, want %+v", request, got, want)
		}
	}
	grants := []grant{
		{"get", "", "secrets"}, {"list", "", "secrets"}, {"get", "g", "*"}, {"list", "g", "*"}, {"list", "", "pods"},
	}
	used := map[grant]bool{{"get", "", "secrets"}: true, {"get", "g", "any"}: true, {"watch", "", "pods"}: true}
	if left := unused(grants, used); !slices.Equal(left, []grant{{"list", "", "secrets"}, {"list", "g", "*"}}) {
		t.Errorf("unused are %+v", left)
	}
}
