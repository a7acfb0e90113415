package envtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// groups are those of the resources in docs/tenants.md.
var groups = map[string][]string{
	"secrets": {""}, "events": {"", "events.k8s.io"}, "kubeadmcontrolplanes": {"controlplane.cluster.x-k8s.io"},
	"kubeadmconfigs": {"bootstrap.cluster.x-k8s.io"}, "kubeadmconfigtemplates": {"bootstrap.cluster.x-k8s.io"},
	"clusters": {"cluster.x-k8s.io"}, "machines": {"cluster.x-k8s.io"}, "machinedeployments": {"cluster.x-k8s.io"},
	"machinepools": {"cluster.x-k8s.io"},
}

// tenantSteps are the commands of the steps in docs/tenants.md.
var tenantSteps = map[string][]string{
	"create and label the proxy Secret": {
		"create secret generic http-proxy --from-literal=httpProxy=http://proxy.example.com:3128",
		"label secret http-proxy capi-proxy-patcher.io/proxy=",
	},
	"label or annotate the Cluster": {
		"label cluster prod capi-proxy-patcher.io/enabled=true --overwrite",
		"annotate cluster prod capi-proxy-patcher.io/no-proxy-groups=-metadata",
	},
	"wait for the generated Secret, read it": {
		"wait secret prod-proxy-files --for=create --timeout=1m", "get secret prod-proxy-files",
	},
	"read condition and events": {"get cluster prod", "events --for cluster/prod"},
}

// tenant is a user with the rights of a row of docs/tenants.md.
type tenant struct{ ns, kubeconfig string }

// TestTenantsPage_RightsSuffice runs each step and each command of docs/tenants.md with the rights that the page names.
func TestTenantsPage_RightsSuffice(t *testing.T) {
	page, err := os.ReadFile("../../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(string(page), -1)
	rights := map[string]string{}
	ran := 0
	for _, row := range rows {
		what, needs := row[1], row[2]
		if strings.HasPrefix(needs, "those of `plan`") {
			needs = rights["`plan --cluster prod`"]
		}
		rights[what] = needs
		if needs == "none" || needs == "rights" {
			continue
		}
		ran++
		t.Run(what, func(t *testing.T) {
			c := newProd(t)
			user := newTenant(t, c.ns, needs)
			for _, args := range tenantSteps[what] {
				user.kubectl(t, strings.Fields(args)...)
			}
			for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(what, -1) {
				user.runs(t, strings.Fields(span[1])...)
			}
		})
	}
	if want := len(tenantSteps) + 5; ran != want {
		t.Errorf("%d rows were run, want %d", ran, want)
	}
}

// newProd creates Cluster prod, which has its proxy.
func newProd(t *testing.T) classic {
	t.Helper()
	ns := namespace(t)
	proxySecret(t, ns, "prod-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "prod")
	c.eventuallyReports(contract.ReasonConfigured)
	return c
}

// newTenant creates a user with rights in a namespace: verbs in backticks, then resources.
func newTenant(t *testing.T, ns, needs string) tenant {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: ref.Name}}
	verb := regexp.MustCompile("`([a-z]+)`")
	for part := range strings.SplitSeq(needs, "; ") {
		var verbs []string
		for _, match := range verb.FindAllStringSubmatch(part, -1) {
			verbs = append(verbs, match[1])
		}
		for resource := range strings.SplitSeq(part[strings.LastIndex(part, "`")+1:], ",") {
			rule := rbacv1.PolicyRule{Verbs: verbs, Resources: []string{strings.TrimSpace(resource)}}
			switch rule.Resources[0] {
			case "those of the manager":
				ref.Kind, ref.Name = "ClusterRole", "capi-proxy-patcher-manager-role"
				continue
			case "the infrastructure cluster":
				rule.APIGroups, rule.Resources = []string{"infrastructure.cluster.x-k8s.io"}, []string{"*"}
			default:
				if rule.APIGroups = groups[rule.Resources[0]]; rule.APIGroups == nil || verbs == nil {
					t.Fatalf("the page has right %q", part)
				}
			}
			role.Rules = append(role.Rules, rule)
		}
	}
	create(t, role, &corev1.ServiceAccount{ObjectMeta: role.ObjectMeta}, &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: ref,
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: role.Name}},
	})
	admin, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := mgmt.ServiceAccountConfig(t.Context(), admin, ns, role.Name)
	if err != nil {
		t.Fatal(err)
	}
	user := tenant{ns, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := mgmt.WriteKubeconfig(user.kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	return user
}

func (u tenant) kubectl(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(mgmt.AssetsVariable), "kubectl"),
		append([]string{"--kubeconfig", u.kubeconfig, "--cache-dir", t.TempDir(), "--namespace", u.ns}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("kubectl %q: %v\n%s", args, err, out)
	}
}

// runs runs a command of the product. check may find something; but what it says about the Cluster must be no lack of
// rights.
func (u tenant) runs(t *testing.T, args ...string) {
	t.Helper()
	args = append(args, "--namespace", u.ns, "--kubeconfig", u.kubeconfig)
	var out, errs bytes.Buffer
	status := cli.Main(t.Context(), args, kit.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
		offline.New(), explain.New(), fleet.New(), check.New())
	if args[0] == "check" {
		_, cluster, found := strings.Cut(out.String(), "\nCluster "+u.ns+"/prod\n")
		if !found || strings.Contains(cluster, "missing right") || strings.Contains(cluster, "is forbidden") {
			t.Errorf("%q: %s%s", args, out.String(), errs.String())
		}
		return
	}
	// status says that it may not read the Lease of the manager, and goes on. With --fail-on it may find something, too.
	said := errs.String()
	for _, lack := range []string{"incomplete", "are not shown", "cannot be read"} {
		if status != 0 && !slices.Contains(args, "--fail-on") || strings.Contains(said, lack) {
			t.Errorf("%q: exit status %d: %s%s", args, status, out.String(), said)
		}
	}
}
