package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// FromNodes are the checks that Pods make on nodes of the workload cluster.
type FromNodes struct {
	// Node is the only node that is checked, AllNodes for each.
	Node string
	// Err is why the workload cluster cannot be reached, nil if there is a Client.
	Err error
	// Client reads and writes the workload cluster.
	Client client.Client
	// APIServer is the URL of its API server, as nodes reach it. ServiceDomain is its domain, "" for the default.
	APIServer, ServiceDomain string
	// Command is that of the program that asks from a node.
	Command []string
	// Image is that of the Pods, "" for that of the manager. Endpoints are URLs outside the cluster.
	Image     string
	Endpoints []string
	// Poll is how long to wait between two looks at a Pod, 0 for two seconds.
	Poll time.Duration
}

// answer is one of those that FromNodes.Command prints.
type answer struct {
	Check   finding.Code `json:"check"`
	OK      bool         `json:"ok"`
	Message string       `json:"message"`
}

// AllNodes is the name that stands for each node.
const AllNodes = "*"

const (
	// checkNamespace is where the Pods run: each cluster has it, and Pods there may read files of nodes.
	checkNamespace = metav1.NamespaceSystem
	// maxNodes is how many nodes are checked, nodesAtOnce how many at a time.
	maxNodes, nodesAtOnce = 50, 10
	// maxName is how much of the name of a node is shown, maxAnswers the longest message of a container that has ended:
	// the workload cluster is not trusted.
	maxName, maxAnswers = 253, 4096
	// podTime is how long the Pod of one node may take, removeTime how long its removal may.
	podTime, removeTime = 3 * time.Minute, 15 * time.Second
)

// fromNodes makes one group of checks for each node.
func (c *checker) fromNodes(ctx context.Context) []Group {
	if err := c.FromNodes.Err; err != nil {
		return []Group{c.group(ctx, "Nodes", one{CodeNodePod, func(context.Context) Result {
			if _, refused := errors.AsType[*remote.RefusedError](err); !refused && !apierrors.IsNotFound(err) {
				return asked(err)
			}
			result := failed("the workload cluster cannot be reached: %v", err)
			result.Do = "mend or wait for Secret " + remote.KubeconfigName(c.Cluster).String() + " with key value, a kubeconfig"
			return result
		}})}
	}
	image, err := c.image(ctx)
	if err != nil {
		return []Group{c.group(ctx, "Nodes", one{CodeNodeImage, func(context.Context) Result { return asked(err) }})}
	}
	nodes, err := c.nodes(ctx)
	if err != nil || len(nodes) == 0 {
		return []Group{c.group(ctx, "Nodes", one{CodeNodePod, func(context.Context) Result {
			if err != nil {
				return asked(err)
			}
			return skipped("the workload cluster has no nodes yet")
		}})}
	}
	server := c.dns(ctx)
	groups := make([]Group, len(nodes))
	var wait sync.WaitGroup
	free := make(chan struct{}, nodesAtOnce)
	for i := range nodes {
		wait.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			name := "Node " + finding.Line(nodes[i].Name, maxName)
			groups[i] = c.group(ctx, name, c.node(ctx, nodes, nodes[i], image, server)...)
		})
	}
	wait.Wait()
	return groups
}

// asked is unread for what the user has asked for: nothing is skipped.
func asked(err error) Result {
	result := unread(err)
	if result.Status == Skipped {
		result.Status, result.Do = Unknown, "--from-nodes needs this right: see capi-proxy-patcher check --help"
	}
	return result
}

// image returns the image of the Pods.
func (c *checker) image(ctx context.Context) (string, error) {
	if c.FromNodes.Image != "" {
		return c.FromNodes.Image, nil
	}
	deployments, err := c.deployments(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the image of the manager, name it with --node-image: %w", err)
	}
	for _, d := range deployments {
		if d.Labels[roleLabel] == roleManager && len(d.Spec.Template.Spec.Containers) > 0 {
			return d.Spec.Template.Spec.Containers[0].Image, nil
		}
	}
	return "", fmt.Errorf("there is no manager in namespace %s; name the image with --node-image", c.Namespace)
}

// nodes returns the nodes to check, of which the list is bounded.
func (c *checker) nodes(ctx context.Context) ([]corev1.Node, error) {
	if name := c.FromNodes.Node; name != AllNodes {
		node := corev1.Node{}
		err := c.FromNodes.Client.Get(ctx, client.ObjectKey{Name: name}, &node)
		return []corev1.Node{node}, err //nolint:wrapcheck // the result is the error
	}
	var list corev1.NodeList
	err := c.FromNodes.Client.List(ctx, &list, client.Limit(maxNodes))
	return list.Items[:min(len(list.Items), maxNodes)], err //nolint:wrapcheck // the result is the error
}

// dns returns the address of the DNS that Pods of the workload cluster use, "" if it is not known.
func (c *checker) dns(ctx context.Context) string {
	service := corev1.Service{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}
	if err := c.FromNodes.Client.Get(ctx, key, &service); err != nil {
		return ""
	}
	if _, err := netip.ParseAddr(service.Spec.ClusterIP); err != nil {
		return ""
	}
	return service.Spec.ClusterIP
}

// node runs the Pod of one node, and returns its answers as checks.
func (c *checker) node(ctx context.Context, all []corev1.Node, node corev1.Node, image, server string) []one {
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	pod := c.pod(all, node, image, server)
	if err := c.FromNodes.Client.Create(ctx, pod); err != nil {
		return []one{{CodeNodePod, func(context.Context) Result {
			if apierrors.IsForbidden(err) {
				return failed("the Pod is refused: %v", err)
			}
			return unread(err)
		}}}
	}
	defer c.remove(ctx, pod)
	state := c.ended(ctx, pod)
	pulled := pulled(pod, image)
	checks := []one{{CodeNodeImage, func(context.Context) Result { return pulled }}}
	switch {
	case pulled.Status != OK:
		return checks
	case state == nil:
		return append(checks, one{CodeNodePod, func(context.Context) Result {
			return failed("Pod %s/%s did not end within %s", pod.Namespace, pod.Name, podTime)
		}})
	}
	var answers []answer
	message := state.Message[:min(len(state.Message), maxAnswers)]
	if err := json.Unmarshal([]byte(message), &answers); err != nil {
		return append(checks, one{CodeNodePod, func(context.Context) Result {
			return failed("the Pod ended with status %d: %s", state.ExitCode, message)
		}})
	}
	for _, answer := range answers {
		checks = append(checks, one{answer.Check, func(context.Context) Result {
			if answer.OK {
				return ok("%s", answer.Message)
			}
			return failed("%s", answer.Message)
		}})
	}
	return checks
}

// remove deletes the Pod of a node, also after the user has ended the command.
func (c *checker) remove(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	_ = c.FromNodes.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)) // it ends by itself, too
}

// ended waits until the container of a Pod has ended, and returns nil if its image cannot be pulled, or if it does not
// end in time.
func (c *checker) ended(ctx context.Context, pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for {
		read := &corev1.Pod{}
		if err := c.FromNodes.Client.Get(ctx, client.ObjectKeyFromObject(pod), read); err == nil {
			*pod = *read
			for _, status := range pod.Status.ContainerStatuses {
				switch {
				case status.State.Terminated != nil:
					return status.State.Terminated
				case status.State.Waiting != nil && slices.Contains(pullReasons(), status.State.Waiting.Reason):
					return nil
				}
			}
			if pod.Status.Phase == corev1.PodFailed {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cmp.Or(c.FromNodes.Poll, 2*time.Second)):
		}
	}
}

// pullReasons are those of a container whose image cannot be pulled.
func pullReasons() []string {
	return []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable"}
}

// pulled says whether containerd has pulled the image: it was asked to, whether the node has it or not.
func pulled(pod *corev1.Pod, image string) Result {
	for _, status := range pod.Status.ContainerStatuses {
		waiting := status.State.Waiting
		if waiting == nil {
			return ok("containerd has pulled %s", image)
		}
		if slices.Contains(pullReasons(), waiting.Reason) {
			return failed("containerd cannot pull %s: %s", image, cmp.Or(waiting.Message, waiting.Reason))
		}
	}
	return failed("the Pod has not started: %s", cmp.Or(pod.Status.Message, pod.Status.Reason, "no kubelet has answered"))
}

// pod returns the Pod that asks from a node. It reads /etc and /usr of the node, and changes nothing.
func (c *checker) pod(all []corev1.Node, node corev1.Node, image, server string) *corev1.Pod {
	args := append(slices.Clone(c.FromNodes.Command), "--root=/host", "--output=/dev/termination-log")
	if server != "" {
		args = append(args, "--dns-server="+server,
			"--dns-name=kubernetes.default.svc."+cmp.Or(c.FromNodes.ServiceDomain, "cluster.local"))
	}
	if c.FromNodes.APIServer != "" {
		args = append(args, "--api-server="+c.FromNodes.APIServer)
	}
	for _, endpoint := range c.FromNodes.Endpoints {
		// Users, paths and queries may hold tokens, and everyone who may read Pods reads arguments.
		if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
			args = append(args, "--endpoint="+u.Scheme+"://"+u.Host+"/")
		}
	}
	for i := range all {
		for _, address := range all[i].Status.Addresses {
			if address.Type == corev1.NodeInternalIP && all[i].Name != node.Name {
				args = append(args, "--node="+address.Address)
			}
		}
	}
	folders := []string{"etc", "usr"}
	mounts, volumes := make([]corev1.VolumeMount, 0, len(folders)), make([]corev1.Volume, 0, len(folders))
	for _, folder := range folders {
		mounts = append(mounts, corev1.VolumeMount{Name: folder, MountPath: "/host/" + folder, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: folder, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/" + folder, Type: new(corev1.HostPathDirectory)},
		}})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: contract.Name + "-check-", Namespace: checkNamespace,
			Labels: map[string]string{"app.kubernetes.io/name": contract.Name, "app.kubernetes.io/component": "check"},
		},
		Spec: corev1.PodSpec{
			NodeName: node.Name, RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true,
			DNSPolicy:                    corev1.DNSDefault, // as containerd
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ActiveDeadlineSeconds:         new(int64(podTime.Seconds())),
			TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes:                       volumes,
			Containers: []corev1.Container{{
				Name: "probe", Image: image, ImagePullPolicy: corev1.PullAlways, Args: args, VolumeMounts: mounts,
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: new(int64(0)), RunAsNonRoot: new(false), ReadOnlyRootFilesystem: new(true),
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
}

// Names of the checks from nodes that are not those of FromNodes.Command.
const (
	CodeNodePod   finding.Code = "node-pod"
	CodeNodeImage finding.Code = "node-image"
)
