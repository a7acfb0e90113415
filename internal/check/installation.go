package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/config"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// ours selects the objects of the product, and roleLabel distinguishes its Deployments.
var ours = client.MatchingLabels{clusterv1.ProviderNameLabel: "runtime-extension-" + contract.Name} //nolint:gochecknoglobals // a constant

const (
	roleLabel   = "control-plane"
	roleManager = "controller-manager"
	roleHooks   = "hooks"
)

func (c *checker) installation() []one {
	return []one{
		{CodeDeployments, c.available},
		{CodeReplicas, c.replicas},
		{CodeVersion, c.sameVersion},
		{CodeLease, c.lease},
		{CodeCertificates, c.certificates},
		{CodeGuard, c.guard},
		{CodePermissions, c.permissions},
		{CodeAdmission, c.admission},
		{CodeHooks, c.hooks},
	}
}

func isManager(d appsv1.Deployment) bool { return d.Labels[roleLabel] == roleManager }

// flagOf returns the value of a flag of a Deployment's first container, "" without it.
func flagOf(d appsv1.Deployment, name string) string {
	for _, container := range d.Spec.Template.Spec.Containers[:min(1, len(d.Spec.Template.Spec.Containers))] {
		for _, arg := range container.Args {
			if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

func (c *checker) available(ctx context.Context) Result {
	deployments, err := c.deployments(ctx)
	if err != nil {
		return unread(err)
	}
	var waiting, all []string
	for _, d := range deployments {
		all = append(all, fmt.Sprintf("%s %d/%d", d.Name, d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1)))
		switch wanted, status := ptr.Deref(d.Spec.Replicas, 1), d.Status; {
		case status.AvailableReplicas < max(wanted, 1) || status.ObservedGeneration != d.Generation:
			waiting = append(waiting, all[len(all)-1]+" available"+c.trouble(ctx, d))
		case status.UpdatedReplicas < wanted: // the others are from before an upgrade
			text := fmt.Sprintf("%s %d/%d updated", d.Name, status.UpdatedReplicas, wanted)
			waiting = append(waiting, text+c.trouble(ctx, d))
		}
	}
	whole := func(d appsv1.Deployment) bool { return flagOf(d, "namespace") == "" && flagOf(d, "watch-filter") == "" }
	switch {
	case !slices.ContainsFunc(deployments, isManager):
		return failed("there is no manager in namespace %s", c.Namespace)
	case len(waiting) > 0:
		return failed("Deployment %s", finding.Few(waiting))
	case slices.ContainsFunc(slices.Concat(deployments, c.elsewhere), func(d appsv1.Deployment) bool {
		return isManager(d) && whole(d)
	}) && len(c.elsewhere) > 0:
		result := warning("managers in namespaces %s and %s serve the same Clusters", c.Namespace, c.elsewhere[0].Namespace)
		result.Do = "delete one, or give each --namespace or --watch-filter; --manager-namespace names the one to check"
		return result
	}
	return ok("%s available", strings.Join(all, ", "))
}

// trouble says why a Pod of a Deployment does not become ready, in the words of the kubelet, the scheduler or the
// controller that creates it; "" if they say nothing.
func (c *checker) trouble(ctx context.Context, d appsv1.Deployment) string {
	pods, _ := c.allPods(ctx, d.Labels[roleLabel]) // who may not read Pods sees the Deployment
	for _, pod := range pods {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if waiting := status.State.Waiting; waiting != nil && waiting.Message != "" {
				text := "; Pod " + pod.Name + ": " + waiting.Reason + ": " + waiting.Message
				if ended := status.LastTerminationState.Terminated; ended != nil && ended.Message != "" {
					lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
					text += "; its last words: " + lines[len(lines)-1]
				}
				return text
			}
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return "; Pod " + pod.Name + ": " + condition.Reason + ": " + condition.Message
			}
		}
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return "; " + condition.Reason + ": " + condition.Message
		}
	}
	return ""
}

// pods returns the Pods with a role that are ready.
func (c *checker) pods(ctx context.Context, role string) ([]corev1.Pod, error) {
	pods, err := c.allPods(ctx, role)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
	}), err
}

func (c *checker) allPods(ctx context.Context, role string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	selected := client.MatchingLabels{roleLabel: role}
	err := c.Client.List(ctx, &pods, client.InNamespace(c.Namespace), ours, selected, maxList)
	return pods.Items, err //nolint:wrapcheck // the result is the error
}

// replicas checks that the loss of a node does not stop admission.
func (c *checker) replicas(ctx context.Context) Result {
	pods, err := c.pods(ctx, roleManager)
	if err != nil {
		return unread(err)
	}
	var nodes []string
	for _, pod := range pods {
		if !slices.Contains(nodes, pod.Spec.NodeName) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	if len(nodes) < 2 {
		return warning("%d ready Pods of the manager run on %d nodes", len(pods), len(nodes))
	}
	return ok("%d ready Pods of the manager run on %d nodes", len(pods), len(nodes))
}

// sameVersion compares what runs with the program: the version in the Lease of the manager, or else the tag of an image
// if it is that of a release; and the images of the Pods with each other.
func (c *checker) sameVersion(ctx context.Context) Result {
	deployments, err := c.deployments(ctx)
	if err != nil {
		return unread(err)
	}
	i := slices.IndexFunc(deployments, isManager)
	if i < 0 {
		return skipped("there is no manager")
	}
	running := ""
	if c.lease(ctx).Status == OK { // an old one does not say what runs
		lease := &coordinationv1.Lease{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: contract.Domain}, lease); err != nil {
			return unread(err)
		}
		running = lease.Labels[contract.LabelVersion]
	}
	mine := contract.Build{Version: c.Version}.Label()
	digests := map[string]bool{}
	var unknown []string
	var old Result
	for _, d := range deployments {
		if len(d.Spec.Template.Spec.Containers) == 0 {
			continue
		}
		named, image := tag(&d), d.Spec.Template.Spec.Containers[0].Image
		_, unclear := version.ParseSemantic(named)
		got := named
		if running != "" && image == deployments[i].Spec.Template.Spec.Containers[0].Image {
			got = running
		} else if unclear != nil {
			unknown = append(unknown, d.Name+" with image "+image)
			got = mine
		}
		if strings.HasPrefix(c.Version, "v") && got != mine {
			return failed("this program is %s, and Deployment %s runs %s", c.Version, d.Name, got)
		}
		if unclear == nil && named != got {
			old = warning("Deployment %s has image %s, and %s runs", d.Name, image, got)
			old.Do = "wait for its rollout: kubectl -n " + d.Namespace + " rollout status deployment " + d.Name
		}
		pods, err := c.pods(ctx, d.Labels[roleLabel])
		if err != nil {
			return unread(err)
		}
		for _, pod := range pods {
			for _, container := range pod.Status.ContainerStatuses {
				_, digest, known := strings.Cut(container.ImageID, "@")
				if _, wanted, pinned := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, "@"); known && pinned {
					digests[wanted] = true
				}
				if known && container.Name == d.Spec.Template.Spec.Containers[0].Name {
					digests[digest] = true
				}
			}
		}
	}
	if len(digests) > 1 {
		return failed("the Pods run %d different images of the same version", len(digests))
	}
	if old.Status != "" {
		return old
	}
	if len(unknown) > 0 {
		return skipped("which version runs is not known of Deployment %s", finding.Few(unknown))
	}
	if !strings.HasPrefix(c.Version, "v") {
		return skipped("this program has no version of a release to compare with: %s", c.Version)
	}
	return ok("this program and the Deployments are %s", c.Version)
}

func (c *checker) lease(ctx context.Context) Result {
	lease := &coordinationv1.Lease{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: contract.Domain}, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return unread(err)
	}
	spec := lease.Spec
	holder := ptr.Deref(spec.HolderIdentity, "")
	if holder == "" || spec.RenewTime == nil {
		return failed("no manager holds Lease %s/%s", c.Namespace, contract.Domain)
	}
	age := c.Now().Sub(spec.RenewTime.Time)
	if age > time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0))*time.Second {
		return failed("%s has not renewed Lease %s/%s for %s", holder, c.Namespace, contract.Domain,
			duration.HumanDuration(age))
	}
	return ok("%s leads", holder)
}

// guard checks that the API server itself protects control planes while no webhook answers.
func (c *checker) guard(ctx context.Context) Result {
	var (
		policies admissionregistrationv1.ValidatingAdmissionPolicyList
		bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	)
	if err := c.Client.List(ctx, &policies, ours); err != nil {
		return unread(err)
	}
	if err := c.Client.List(ctx, &bindings, ours); err != nil {
		return unread(err)
	}
	for _, policy := range policies.Items {
		for _, binding := range bindings.Items {
			if binding.Spec.PolicyName == policy.Name &&
				slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
				return ok("ValidatingAdmissionPolicy %s is bound", policy.Name)
			}
		}
	}
	if len(policies.Items) > 0 {
		return failed("ValidatingAdmissionPolicy %s is not bound, and refuses nothing", policies.Items[0].Name)
	}
	return warning("the guard is not installed")
}

// permissions checks that the manager may do what its role says: all of it is used.
func (c *checker) permissions(ctx context.Context) Result {
	deployments, err := c.deployments(ctx)
	if err != nil {
		return unread(err)
	}
	i := slices.IndexFunc(deployments, isManager)
	if i < 0 {
		return skipped("there is no manager")
	}
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal(config.ManagerRole, &role); err != nil {
		return unread(err)
	}
	pod := deployments[i].Spec.Template.Spec
	user := "system:serviceaccount:" + c.Namespace + ":" + pod.ServiceAccountName
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Namespace, "system:authenticated"}
	namespace := flagOf(deployments[i], "namespace")
	var missing []string
	for _, rule := range role.Rules {
		for _, attributes := range attributesOf(rule, namespace) {
			if namespace != "" && attributes.Resource == "namespaces" {
				continue // for the installation-wide Secret, which such an installation does not have
			}
			review := &authorizationv1.SubjectAccessReview{}
			review.Spec.User, review.Spec.Groups, review.Spec.ResourceAttributes = user, groups, &attributes
			if err := c.Client.Create(ctx, review); err != nil {
				return unread(err)
			}
			if !review.Status.Allowed {
				missing = append(missing, attributes.Verb+" "+attributes.Resource)
			}
		}
	}
	if len(missing) > 0 {
		return failed("the manager may not %s", finding.Few(missing))
	}
	return ok("the manager has the rights of this version")
}

// attributesOf returns the single rights of a rule.
func attributesOf(rule rbacv1.PolicyRule, namespace string) (all []authorizationv1.ResourceAttributes) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				all = append(all, authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
				})
			}
		}
	}
	return all
}

// isOurs reports whether an ExtensionConfig calls the hooks of this installation.
func (c *checker) isOurs(config *unstructured.Unstructured) bool {
	service, _, _ := unstructured.NestedString(config.Object, "spec", "clientConfig", "service", "name")
	handlers, _, _ := unstructured.NestedSlice(config.Object, "status", "handlers")
	if strings.HasPrefix(service, contract.Name) {
		return true
	}
	return slices.ContainsFunc(handlers, func(handler any) bool {
		fields, _ := handler.(map[string]any)
		name, _ := fields["name"].(string)
		return strings.HasPrefix(name, contract.HandlerDiscoverVariables+"."+contract.Name)
	})
}
