package check_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

func terminated(code int32, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
	}}}}
}

// What the kubelet of a node says becomes one group, and no Pod is left, whatever it says.
func TestFromNodes_AsksFromEachNodeAndLeavesNothing(t *testing.T) {
	t.Parallel()
	const image = "r.example.com/p:v0.1.0"
	for name, test := range map[string]struct {
		node      string
		status    corev1.PodStatus // what the kubelet says
		refused   bool
		interrupt bool
		want      map[string]string // of node a: "status: message" by check
		groups    int
	}{
		"all is well": {
			node: check.AllNodes, groups: 2,
			status: terminated(0, `[{"check":"node-variables","ok":true,"message":"6 variables"},{"check":"node-endpoint","ok":true,"message":"status 200"}]`),
			want: map[string]string{
				"node-image": "ok: containerd has pulled " + image, "node-variables": "ok: 6 variables", "node-endpoint": "ok: status 200",
			},
		},
		"one node, a wrong password": {
			node: "a", groups: 1,
			status: terminated(0, `[{"check":"node-endpoint","ok":false,"message":"https://r, through the proxy: Proxy Authentication Required"}]`),
			want: map[string]string{
				"node-image":    "ok: containerd has pulled " + image,
				"node-endpoint": "failed: https://r, through the proxy: Proxy Authentication Required",
			},
		},
		"an image that cannot be pulled": {
			node: "a", groups: 1,
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "proxyconnect tcp: 407\x1b[31m"},
			}}}},
			want: map[string]string{"node-image": "failed: containerd cannot pull " + image + ": proxyconnect tcp: 407"},
		},
		"a kubelet that refuses the Pod": {
			node: "a", groups: 1, status: corev1.PodStatus{Phase: corev1.PodFailed, Message: "Pod was rejected: no room"},
			want: map[string]string{"node-image": "failed: the Pod has not started: Pod was rejected: no room"},
		},
		"another program in the image": {
			node: "a", groups: 1, status: terminated(2, strings.Repeat("unknown command\n", 1000)),
			want: map[string]string{
				"node-image": "ok: containerd has pulled " + image, "node-pod": "failed: the Pod ended with status 2: unknown command",
			},
		},
		"a policy that refuses the Pod": {
			node: "a", groups: 1, refused: true,
			want: map[string]string{"node-pod": "failed: the Pod is refused:"},
		},
		"an interrupt": {
			node: "a", groups: 1, interrupt: true,
			want: map[string]string{"node-image": "failed: the Pod has not started: no kubelet has answered"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			nodes := []client.Object{}
			for i, name := range []string{"a", "b"} {
				nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
					Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: []string{"10.1.2.3", "10.1.2.4"}[i]}},
				}})
			}
			scheme, err := api.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			created := make(chan []string, 2)
			remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(nodes...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					pod, _ := o.(*corev1.Pod)
					if test.refused {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
					}
					pod.Name, pod.Status = pod.GenerateName+pod.Spec.NodeName, test.status
					created <- pod.Spec.Containers[0].Args
					if test.interrupt {
						interrupt()
					}
					return c.Create(ctx, o, opts...)
				},
			}).Build()
			options := newWorld(t).options(t)
			options.FromNodes = &check.FromNodes{
				Command: []string{"node", "probe"},
				Node:    test.node, Client: remote, Image: image, APIServer: "https://10.0.0.1:6443", Poll: time.Millisecond,
				Endpoints: []string{"https://user:t0ken@r.example.com:8443/t0ken?t0ken#t0ken"},
			}
			report := check.Run(ctx, options)
			var groups []check.Group
			for _, group := range report.Groups {
				if strings.HasPrefix(group.Name, "Node ") {
					groups = append(groups, group)
				}
			}
			if len(groups) != test.groups || len(groups) == 0 {
				t.Fatalf("%d groups: %+v", len(groups), report.Groups)
			}
			got := map[string]string{}
			for _, result := range groups[0].Checks {
				text, want := string(result.Status)+": "+result.Message, test.want[string(result.Check)]
				got[string(result.Check)] = text
				if strings.HasPrefix(text, want) {
					got[string(result.Check)] = want
				}
				if result.Status == check.Failed && (result.Do == "" || result.Link == "") || len(result.Message) > 700 {
					t.Errorf("%+v", result)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var pods corev1.PodList
			if err := remote.List(t.Context(), &pods); err != nil || len(pods.Items) != 0 {
				t.Errorf("%d Pods are left, %v", len(pods.Items), err)
			}
			if test.groups == 2 {
				if args := strings.Join(<-created, " "); strings.Count(args, "--node=") != 1 ||
					!strings.Contains(args, "--endpoint=https://r.example.com:8443/") || strings.Contains(args, "t0ken") {
					t.Errorf("asks for %s", args)
				}
			}
		})
	}
}
