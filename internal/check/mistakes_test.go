package check_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// mistake is one that an operator made, in a world in which everything else is right.
type mistake struct {
	edit    func(t *testing.T, w *world)
	options func(o *check.Options)
	check   string
	want    string // status: message
	do      string // a part of what to do
	link    string // the section, "" for that of the check
	report  check.Status
}

func image(image string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.deployment("manager").Spec.Template.Spec.Containers[0].Image = image }
}

func secretWith(label string) string {
	return "{apiVersion: v1, kind: Secret, metadata: {name: http-proxy, namespace: team-a, labels: {" + label + "}}}"
}

func anyCluster(o *check.Options) { o.Cluster.Name = "" }

// waiting has a container of Pod a wait, and no Pod is available.
func waiting(w *world, state corev1.ContainerState, before corev1.ContainerState) {
	pod, _ := w.objects["a"].(*corev1.Pod)
	pod.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: state, LastTerminationState: before}}}
	w.deployment("manager").Status.AvailableReplicas = 0
}

func annotated(key, value string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.cluster().Annotations = map[string]string{key: value} }
}

// second installs a manager in another namespace.
func second(t *testing.T, w *world, flags string) {
	t.Helper()
	w.add(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: manager, namespace: other, "+labels+"}, "+
		"spec: {template: {spec: {containers: [{name: manager, args: ["+flags+"]}]}}}}")
}

// publishes gives the Cluster a condition of a capability.
func publishes(status metav1.ConditionStatus, reason string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		w.cluster().Status.Conditions = append(w.cluster().Status.Conditions, metav1.Condition{
			Type: contract.Domain + "/Tested", Status: status, Reason: reason, Message: "run the manager with --node-image",
		})
	}
}

// TestRun_NamesTheMistakesOfAnOperator has the mistakes of an operator's trial that this command answered by half, not at
// all, or wrongly.
func TestRun_NamesTheMistakesOfAnOperator(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]mistake{
		"a Secret without its label": {
			edit: func(t *testing.T, w *world) {
				t.Helper()
				w.add(t, secretWith(""))
				w.rows[0].Status, w.rows[0].Reason, w.rows[0].Message = "False", "SettingsNotFound", "no Secret exists"
			},
			check: "cluster-condition", want: "failed: SettingsNotFound: no Secret exists", link: "settingsnotfound", report: check.Failed,
			do: "kubectl -n team-a label secret http-proxy capi-proxy-patcher.io/proxy=",
		},
		"a Secret that is used without its label": {
			edit:  func(_ *testing.T, w *world) { w.rows[0].Warning = "unlabelled-secret" },
			check: "cluster-secret", want: "warning: ", link: "unlabelled-secret", report: check.OK,
			do: "kubectl -n team-a label secret http-proxy capi-proxy-patcher.io/proxy=",
		},
		"a Secret that nobody uses": {
			edit:  func(_ *testing.T, w *world) { w.rows[0].Status, w.rows[0].Reason = "False", "SettingsNotFound" },
			check: "cluster-secret", report: check.Failed,
			want: "skipped: whether Secret team-a/http-proxy is in use is not known",
		},
		"a warning of several lines": {
			edit:  func(_ *testing.T, w *world) { w.rows[0].Warning = "x\n  ok lease" },
			check: "cluster-secret", want: "warning: the settings have warning x;   ok lease", link: "x;   ok lease",
			do: "", report: check.OK,
		},
		"a key that looks like that of the Secret's label": {
			edit:  func(t *testing.T, w *world) { t.Helper(); w.add(t, secretWith(`capi-proxy-pacher.io/proxy: ""`)) },
			check: "labels", want: "warning: label capi-proxy-pacher.io/proxy of Secret team-a/http-proxy has no effect", report: check.OK,
			do: "kubectl -n team-a label secret http-proxy capi-proxy-pacher.io/proxy- capi-proxy-patcher.io/proxy=",
		},
		"a name that looks like that of the Secret's label": {
			edit:  func(t *testing.T, w *world) { t.Helper(); w.add(t, secretWith(`capi-proxy-patcher.io/proxies: ""`)) },
			check: "labels", want: "warning: label capi-proxy-patcher.io/proxies of Secret", do: "kubectl", report: check.OK,
		},
		"the parts in another order": {
			edit:  func(t *testing.T, w *world) { t.Helper(); w.add(t, secretWith(`proxy.capi-proxy-patcher.io: ""`)) },
			check: "labels", want: "warning: label proxy.capi-proxy-patcher.io of Secret", do: "kubectl", report: check.OK,
		},
		"a key that looks like that of the Cluster's label": {
			edit: func(_ *testing.T, w *world) {
				w.cluster().Labels = map[string]string{"capi-proxy-patcher/enabled": "true"}
			},
			check: "labels", want: "warning: label capi-proxy-patcher/enabled of Cluster team-a/prod has no effect", report: check.Failed,
			do: "kubectl -n team-a label cluster prod capi-proxy-patcher/enabled- capi-proxy-patcher.io/enabled=true",
		},
		"a Cluster's key without the right to read Secrets": {
			edit: func(_ *testing.T, w *world) {
				w.forbidden, w.cluster().Labels = "Secret", map[string]string{"capi-proxy-patcher/enabled": "true"}
			},
			check: "labels", want: "warning: label capi-proxy-patcher/enabled of Cluster team-a/prod has no effect", report: check.Failed,
			do: "kubectl",
		},
		"no right to read the labels of Secrets": {
			edit:  func(_ *testing.T, w *world) { w.forbidden = "Secret" },
			check: "labels", want: "skipped: missing right: ", report: check.OK,
		},
		"labels while waiting": {
			edit:    func(t *testing.T, w *world) { t.Helper(); w.add(t, secretWith(`capi-proxy-pacher.io/proxy: ""`)) },
			options: func(o *check.Options) { o.Waiting = true },
			check:   "labels", want: "skipped: not with --wait", report: check.OK,
		},
		"labels of others": {
			edit: func(t *testing.T, w *world) {
				t.Helper()
				w.add(t, secretWith(`capi-proxy-patcher.io/generated-for: prod, app.kubernetes.io/name: capi-proxy-patcher, example.com/proxy: ""`))
			},
			check: "labels", want: "ok: ", report: check.OK,
		},
		"no label": {
			edit:  func(_ *testing.T, w *world) { w.cluster().Labels = nil },
			check: "cluster-label", want: "failed: Cluster team-a/prod has no label", report: check.Failed,
			do: "kubectl -n team-a label cluster prod capi-proxy-patcher.io/enabled=true",
		},
		"no Cluster API": {
			options: func(o *check.Options) {
				o.Rows = func(context.Context, types.NamespacedName) (reported.Result, error) {
					return reported.Result{}, apierrors.NewGenericServerResponse(404, "get",
						schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "clusters"}, "", "", 0, true)
				}
			},
			check: "proxy-secrets", want: "skipped: not installed: ", report: check.OK,
		},
		"a Secret with its namespace": {
			edit:  annotated("capi-proxy-patcher.io/secret", "demo/http-proxy"),
			check: "cluster-label", link: "bad-annotation", report: check.Failed,
			want: `failed: annotation capi-proxy-patcher.io/secret: "demo/http-proxy" cannot be the name of a Secret; name a Secret in the Cluster's namespace, without the namespace`,
		},
		"an annotation that is mistyped": {
			edit:  annotated("capi-proxy-patcher.io/rolout", "Immediate"),
			check: "cluster-label", link: "unknown-name", report: check.OK,
			want: "warning: unknown-name: annotation capi-proxy-patcher.io/rolout: unknown annotation, ignored; did you mean capi-proxy-patcher.io/rollout?",
		},
		"a name that is mistyped": {
			options: func(o *check.Options) { o.Cluster.Name = "prd" },
			check:   "cluster-label", want: "failed: Cluster team-a/prd does not exist", do: "found: team-a/prod", report: check.Failed,
		},
		"a name that is mistyped, of many": {
			edit:    clusters("a/a", "a/b", "a/c", "a/d", "team-a/x", "team-a/y"),
			options: func(o *check.Options) { o.Cluster.Name = "prd" },
			check:   "cluster-label", want: "failed: Cluster team-a/prd does not exist", report: check.Failed,
			do: "found: team-a/prod, team-a/x, team-a/y and 4 more",
		},
		"a namespace that is wrong": {
			edit:    clusters("team-a/a", "team-a/b", "team-a/c", "z/stage"),
			options: func(o *check.Options) { o.Cluster.Name = "stage" },
			check:   "cluster-label", want: "failed: Cluster team-a/stage does not exist", report: check.Failed,
			do: "found: z/stage, team-a/a",
		},
		"a node that is taken for a Cluster": {
			options: func(o *check.Options) {
				o.Cluster.Name = "node-1"
				o.FromNodes = &check.FromNodes{Node: check.AllNodes, Err: errors.New("x")}
			},
			check: "cluster-label", want: "failed: Cluster team-a/node-1 does not exist", do: "; a node is --from-nodes=node-1", report: check.Failed,
		},
		"a name of several lines": {
			options: func(o *check.Options) {
				o.Cluster.Name = "x\ny"
				o.FromNodes = &check.FromNodes{Node: check.AllNodes, Err: errors.New("x")}
			},
			check: "cluster-label", want: "failed: Cluster team-a/x; y does not exist", do: "--from-nodes=x; y", report: check.Failed,
		},
		"addresses of a Cluster that does not exist": {
			options: func(o *check.Options) { o.Cluster.Name = "prd" },
			check:   "cluster-addresses", want: "skipped: the Cluster does not exist", report: check.Failed,
		},
		"a Cluster that is paused": {
			edit:  func(_ *testing.T, w *world) { w.rows[0].Paused, w.rows[0].Reason = true, "" },
			check: "cluster-condition", want: "warning: the Cluster is paused", do: "unpause", link: "paused", report: check.OK,
		},
		"rollout InPlace without a manager that can": {
			edit: publishes("False", "CannotTest"), check: "cluster-published", report: check.Failed, link: "cannottest",
			want: "failed: CannotTest: run the manager with --node-image",
		},
		"nodes that are changed in place": {
			edit: publishes("Unknown", "Testing"), check: "cluster-published", report: check.OK, want: "warning: Testing: ", link: "testing", do: "wait",
		},
		"outputs that are out": {
			edit: publishes("True", "Tested"), check: "cluster-published", report: check.OK, want: "ok: Tested",
		},
		"an image that cannot be pulled": {
			edit: func(_ *testing.T, w *world) {
				waiting(w, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "407"}}, corev1.ContainerState{})
			},
			check: "deployments", want: "failed: Deployment manager 0/2 available; Pod a: ImagePullBackOff: 407", do: "describe", report: check.Failed,
		},
		"an upgrade whose image cannot be pulled": {
			edit: func(_ *testing.T, w *world) {
				waiting(w, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "407"}}, corev1.ContainerState{})
				w.deployment("manager").Status = appsv1.DeploymentStatus{AvailableReplicas: 2, UpdatedReplicas: 1}
			},
			check: "deployments", want: "failed: Deployment manager 1/2 updated; Pod a: ErrImagePull: 407", do: "describe", report: check.Failed,
		},
		"a manager that ends again and again": {
			edit: func(_ *testing.T, w *world) {
				waiting(w, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m"}},
					corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "one\nunknown flag --x\n"}})
			},
			check: "deployments", want: "failed: Deployment manager 0/2 available; Pod a: CrashLoopBackOff: back-off 5m; its last words: unknown flag --x",
			do: "describe", report: check.Failed,
		},
		"no node for a Pod": {
			edit: func(_ *testing.T, w *world) {
				waiting(w, corev1.ContainerState{}, corev1.ContainerState{})
				pod, _ := w.objects["a"].(*corev1.Pod)
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", Message: "0/3 nodes"}}
			},
			check: "deployments", want: "failed: Deployment manager 0/2 available; Pod a: Unschedulable: 0/3 nodes", do: "describe", report: check.Failed,
		},
		"a Pod that is refused": {
			edit: func(_ *testing.T, w *world) {
				w.deployment("manager").Status = appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentReplicaFailure, Status: "True", Reason: "FailedCreate", Message: "exceeded quota"},
				}}
			},
			check: "deployments", want: "failed: Deployment manager 0/2 available; FailedCreate: exceeded quota", do: "describe", report: check.Failed,
		},
		"an image of another program": {edit: image("nginx:1.27"), check: "version", want: "skipped: which version runs is not known of Deployment manager with image nginx:1.27", report: check.OK},
		"an image without a version":  {edit: image("r/p:latest"), check: "version", want: "skipped: which version runs is not known", report: check.OK},
		"an image by digest":          {edit: image("r/p@sha256:11"), check: "version", want: "skipped: which version runs is not known", report: check.OK},
		"a digest and the version":    {edit: leads("r/p@sha256:11", "v0.1.0"), check: "version", want: "ok: this program and the Deployments are v0.1.0", report: check.OK},
		"a digest of another version": {edit: leads("r/p@sha256:11", "v0.2.0"), check: "version", want: "failed: this program is v0.1.0, and Deployment manager runs v0.2.0", do: "program", report: check.Failed},
		"a tag that is not what runs": {edit: leads("r/p:v0.1.0", "v0.2.0"), check: "version", want: "failed: this program is v0.1.0, and Deployment manager runs v0.2.0", do: "program", report: check.Failed},
		"a tag that does not run yet": {edit: leads("r/p:v0.2.0", "v0.1.0"), check: "version", want: "warning: Deployment manager has image r/p:v0.2.0, and v0.1.0 runs", do: "kubectl -n sys rollout status deployment manager", report: check.OK},
		"no manager has a version":    {edit: func(_ *testing.T, w *world) { delete(w.objects, "manager") }, check: "version", want: "skipped: there is no manager", report: check.Failed},
		"webhooks that are deleted":   {edit: func(_ *testing.T, w *world) { delete(w.objects, "webhooks") }, check: "admission", want: "failed: the manager serves webhooks, and no MutatingWebhookConfiguration calls them", do: "apply the release again", report: check.Failed},
		"webhooks that nobody serves": {edit: unserved, check: "admission", want: "warning: the webhooks are not installed", do: "nothing if you chose config/without-webhooks", report: check.OK},
		"an installation elsewhere":   {options: func(o *check.Options) { o.Namespace = "" }, check: "lease", want: "ok: a leads", report: check.OK},
		"another namespace was named": {options: func(o *check.Options) { o.Namespace = "x" }, check: "deployments", want: "failed: there is no manager in namespace x", do: "install", report: check.Failed},
		"a second installation":       {edit: func(t *testing.T, w *world) { t.Helper(); second(t, w, "") }, check: "deployments", want: "warning: managers in namespaces sys and other serve the same Clusters", do: "--watch-filter", report: check.OK},
		"a second for what is labelled": {
			edit: func(t *testing.T, w *world) {
				t.Helper()
				second(t, w, "--watch-filter=b")
				w.deployment("manager").Spec.Template.Spec.Containers[0].Args = []string{"--watch-filter=a"}
			},
			check: "deployments", want: "ok: ", report: check.OK,
		},
		"a Cluster of somebody else": {
			edit: theirs("InvalidSettings"), options: anyCluster, check: "proxy-secrets", report: check.OK,
			want: "warning: 1 of 2 labelled Clusters do not have the proxy: t1/c", do: "status -A",
		},
		"a Cluster of somebody else beside one's own": {
			edit: theirs("InvalidSettings"), check: "proxy-secrets", report: check.OK,
			want: "warning: 1 of 2 labelled Clusters do not have the proxy: t1/c", do: "status -A",
		},
		"a Cluster of somebody else that waits": {edit: theirs("WaitingForRollout"), options: anyCluster, check: "proxy-secrets", want: "ok: ", report: check.OK},
		"a ClusterClass of somebody else": {
			edit: func(t *testing.T, w *world) {
				t.Helper()
				w.class(t, "", `{conditions: [{type: Discovered, status: "True"}]}`)
			},
			options: anyCluster, check: "cluster-classes", report: check.Failed, // the hooks have no certificate
			want: "warning: 1 of 1: ClusterClass team-a/quick-start of a labelled Cluster does not exist", do: "spec.topology.classRef",
		},
		"a ClusterClass beside one's own Cluster": {
			edit: func(t *testing.T, w *world) {
				t.Helper()
				w.class(t, "", `{conditions: [{type: Discovered, status: "True"}]}`)
				w.cluster().Name = "other"
			},
			check: "cluster-classes", want: "skipped: the Cluster is not labelled, or has no ClusterClass", report: check.Failed, // own is gone
		},
		"no right to read Secrets": {
			edit: func(_ *testing.T, w *world) { w.forbidden, w.rows[0].Secret = "Secret", "" }, check: "cluster-secret",
			want: "skipped: missing right: list secrets", report: check.OK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.edit != nil {
				test.edit(t, w)
			}
			o := w.options(t)
			if test.options != nil {
				test.options(&o)
			}
			report := check.Run(t.Context(), o)
			got := resultsOf(report)[test.check]
			if text := string(got.Status) + ": " + got.Message; !strings.HasPrefix(text, test.want) || report.Status != test.report {
				t.Errorf("got %q, want %q; the report is %s, want %s", text, test.want, report.Status, test.report)
			}
			problem := got.Status == check.Failed || got.Status == check.Warning
			if link := "#" + test.check; problem && !strings.HasSuffix(got.Link, link) && !strings.HasSuffix(got.Link, "#"+test.link) ||
				!problem && got.Link != "" || !strings.Contains(got.Do, test.do) || test.do == "" && got.Do != "" {
				t.Errorf("do %q, want %q; link %s", got.Do, test.do, got.Link)
			}
		})
	}
}

// leads has a manager with an image lead, which has written its version.
func leads(name, version string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		image(name)(t, w)
		lease, _ := w.objects["lease"].(*coordinationv1.Lease)
		lease.Labels = map[string]string{contract.LabelVersion: version}
	}
}

// clusters adds Clusters, which are named as namespace/name.
func clusters(all ...string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		for _, one := range all {
			namespace, name, _ := strings.Cut(one, "/")
			w.objects[one] = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		}
	}
}

func unserved(_ *testing.T, w *world) {
	delete(w.objects, "webhooks")
	w.deployment("manager").Spec.Template.Spec.Containers[0].Args = nil
}

// theirs adds a Cluster of somebody else that is not configured.
func theirs(reason string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		row := reported.RowOf(&clusterv1.Cluster{}, nil)
		row.Namespace, row.Name, row.Status, row.Reason = "t1", "c", "False", reason
		w.rows = append(w.rows, row)
	}
}

// unanswered is a client without answers.
type unanswered struct {
	client.Client

	err error
}

func (u unanswered) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return u.err
}

// TestRun_SaysOnceThatTheAPIServerIsAway has one line instead of one for each check.
func TestRun_SaysOnceThatTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api", Err: syscall.ECONNREFUSED}
	for want, err := range map[string]error{
		"the connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?": fmt.Errorf("failed to get server groups: %w", refused),
		"unable to connect to the server: x509: unknown authority":                                         &url.Error{URL: "https://a", Err: errors.New("x509: unknown authority")},
		"context deadline exceeded": context.DeadlineExceeded,
	} {
		for name, run := range map[string]func(context.Context, check.Options) check.Report{"run": check.Run, "pre": check.Pre, "pre-delete": check.PreDelete} {
			o := newWorld(t).options(t)
			o.Client = unanswered{o.Client, err}
			report := run(t.Context(), o)
			got := resultsOf(report)["api-server"]
			if len(report.Groups) != 1 || len(report.Groups[0].Checks) != 1 || report.Status != check.Unknown || got.Message != want ||
				got.Do == "" || !strings.HasSuffix(got.Link, "#api-server") {
				t.Errorf("%s: got %+v, want %q", name, report, want)
			}
		}
	}
}

// TestRun_IsUnknownToWhoSeesNothing has a user without any right, and one who may read one Cluster.
func TestRun_IsUnknownToWhoSeesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forbidden = "*"
	report := check.Run(t.Context(), w.options(t))
	if report.Status != check.Unknown || !strings.HasSuffix(report.Summary(), "you may see too little to tell whether it works") {
		t.Errorf("%s: %s", report.Status, report.Summary())
	}
	for _, group := range report.Groups {
		for _, result := range group.Checks {
			if result.Status == check.Failed || result.Status == check.Unknown || result.Status == check.Warning {
				t.Errorf("%+v", result)
			}
		}
	}
	w.forbidden = "*Cluster"
	if report := check.Run(t.Context(), w.options(t)); report.Status != check.OK {
		t.Errorf("one's own Cluster: %+v", report)
	}
}
