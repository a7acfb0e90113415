package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest/diff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

const (
	demoNamespace = "demo"
	demoCluster   = "my-cluster"
)

// variables are what a user gives clusterctl for the template.
func variables(name string) (string, error) {
	switch name {
	case "CLUSTER_NAME":
		return demoCluster, nil
	case "NAMESPACE":
		return demoNamespace, nil
	case "KUBERNETES_VERSION":
		return "v1.36.3", nil
	case "CONTROL_PLANE_ENDPOINT_HOST":
		return "my-cluster.example.com", nil
	}
	return "", fmt.Errorf("variable %s is not set", name)
}

// show applies a Cluster the way users do and prints what becomes of it.
func show(ctx context.Context, kubeconfig string, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	user, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: demoNamespace}}); err != nil {
		return err
	}
	for _, file := range []string{"proxy-secret.yaml", "cluster-template.yaml"} {
		step("applying hack/demo/" + file)
		if err := applyTemplate(ctx, user, filepath.Join("hack", "demo", file)); err != nil {
			return err
		}
	}
	step("waiting for condition " + contract.ConditionProxyConfigured)
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	template := &bootstrapv1.KubeadmConfigTemplate{}
	condition, err := waitConfigured(ctx, user, controlPlane, template)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\n    %s: %s (%s)\n    %s\n", condition.Type, condition.Status, condition.Reason,
		condition.Message)
	title(out, "What changed in the specs")
	if err := printChange(out, "KubeadmControlPlane spec.kubeadmConfigSpec", "KubeadmControlPlane",
		controlPlane.Spec.KubeadmConfigSpec, "spec", "kubeadmConfigSpec"); err != nil {
		return err
	}
	if err := printChange(out, "KubeadmConfigTemplate spec.template.spec", "KubeadmConfigTemplate",
		template.Spec.Template.Spec, "spec", "template", "spec"); err != nil {
		return err
	}
	if err := printNode(ctx, user, out, controlPlane.Spec.KubeadmConfigSpec); err != nil {
		return err
	}
	return applyAgain(ctx, user, out, controlPlane, template)
}

// applyAgain applies the Cluster for a second time, without the entries that were added, and looks that nothing
// changes.
func applyAgain(ctx context.Context, user client.Client, out io.Writer, patched ...client.Object) error {
	title(out, "The same manifest again")
	_, _ = fmt.Fprintln(out)
	step("waiting until the API server asks the webhooks")
	file := filepath.Join("hack", "demo", "cluster-template.yaml")
	if err := waitWebhooks(ctx, user, file); err != nil {
		return err
	}
	step("applying " + file)
	if err := applyTemplate(ctx, user, file); err != nil {
		return err
	}
	for _, before := range patched {
		after := before.DeepCopyObject().(client.Object)
		if err := user.Get(ctx, client.ObjectKeyFromObject(before), after); err != nil {
			return err
		}
		kind, err := user.GroupVersionKindFor(after)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "    %s %s: generation %d before, %d after\n", kind.Kind, after.GetName(),
			before.GetGeneration(), after.GetGeneration())
		if before.GetGeneration() != after.GetGeneration() {
			return fmt.Errorf("applying the manifest again changed the spec of %s %s", kind.Kind, after.GetName())
		}
	}
	return nil
}

// waitWebhooks waits until applying a file without storing anything, as kubectl diff does, keeps the files of the
// control plane.
func waitWebhooks(ctx context.Context, user client.Client, file string) error {
	return poll(ctx, "the API server does not ask the webhooks", func() (bool, error) {
		objects, err := process(file)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(objects,
			func(o *unstructured.Unstructured) bool { return o.GetKind() == "KubeadmControlPlane" })
		dry := objects[i]
		if err := user.Apply(ctx, client.ApplyConfigurationFromUnstructured(dry), client.FieldOwner("kubectl"),
			client.DryRunAll); err != nil {
			return false, err
		}
		controlPlane := &controlplanev1.KubeadmControlPlane{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(dry.Object, controlPlane)
		return patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)), err
	})
}

// applyTemplate is clusterctl generate cluster --from FILE | kubectl apply --server-side -f -.
func applyTemplate(ctx context.Context, user client.Client, file string) error {
	objects, err := process(file)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := user.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("kubectl")); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// process fills in the variables of a template with clusterctl's own code.
func process(file string) ([]*unstructured.Unstructured, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // one of ours
	if err != nil {
		return nil, err
	}
	text, err := yamlprocessor.NewSimpleProcessor().Process(raw, variables)
	if err != nil {
		return nil, fmt.Errorf("processing %s: %w", file, err)
	}
	stream, err := manifest.Parse(file, text)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, object := range stream.Objects() {
		objects = append(objects, &unstructured.Unstructured{Object: object.Value()})
	}
	return objects, nil
}

// waitConfigured waits until the Cluster is configured with both of its bootstrap objects, which it reads.
func waitConfigured(
	ctx context.Context, user client.Client, controlPlane *controlplanev1.KubeadmControlPlane,
	template *bootstrapv1.KubeadmConfigTemplate,
) (condition *metav1.Condition, err error) {
	cluster := &clusterv1.Cluster{}
	err = poll(ctx, "the condition does not become True", func() (bool, error) {
		for name, object := range map[string]client.Object{
			demoCluster: cluster, demoCluster + "-control-plane": controlPlane, demoCluster + "-md-0": template,
		} {
			if err := user.Get(ctx, client.ObjectKey{Namespace: demoNamespace, Name: name}, object); err != nil {
				return false, err
			}
		}
		condition = meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyConfigured)
		return condition != nil && condition.Status == metav1.ConditionTrue &&
			patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)) &&
			patch.IsPatched(api.Spec(&template.Spec.Template.Spec)), nil
	})
	return condition, err
}

// missing are the checks that fail in the demo, because the manager is a process beside an API server, which runs no
// Pods.
const missing = "failed (cert-manager, deployments, certificates), "

// check asks the program whether everything is right, and looks that it names what the demo has not, and nothing else.
func check(ctx context.Context, kubeconfig, binary string, out io.Writer) error {
	title(out, "What check says")
	_, _ = fmt.Fprintln(out)
	var said bytes.Buffer
	command := exec.CommandContext(ctx, binary, "check", "--kubeconfig", kubeconfig, //nolint:gosec // the program to show
		"--cluster", demoNamespace+"/"+demoCluster)
	command.Stdout, command.Stderr = io.MultiWriter(out, &said), os.Stderr
	if err := command.Run(); !strings.Contains(said.String(), missing) {
		return fmt.Errorf("capi-proxy-patcher check does not end with %q: %w", missing, err)
	}
	_, _ = fmt.Fprintln(out, "\nThe demo has no cert-manager, and its manager is no Deployment: check names both.")
	return nil
}

func title(out io.Writer, text string) {
	_, _ = fmt.Fprintf(out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// printChange prints a bootstrap spec before and after as a diff.
func printChange(out io.Writer, name, kind string, after bootstrapv1.KubeadmConfigSpec, path ...string) error {
	objects, err := process(filepath.Join("hack", "demo", "cluster-template.yaml"))
	if err != nil {
		return err
	}
	var before map[string]any
	for _, object := range objects {
		if object.GetKind() == kind {
			before, _, _ = unstructured.NestedMap(object.Object, path...)
		}
	}
	was, err := yaml.Marshal(before)
	if err != nil {
		return err
	}
	is, err := yaml.Marshal(after)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\n%s",
		diff.Unified(name+" (before)", name+" (after)", diff.Part{Old: string(was), New: string(is)}))
	return nil
}

// printNode prints the files and commands that the first node gets, with the password hidden.
func printNode(ctx context.Context, user client.Client, out io.Writer, spec bootstrapv1.KubeadmConfigSpec) error {
	title(out, "What a node gets")
	for _, f := range spec.Files {
		content := []byte(f.Content)
		if f.ContentFrom.IsDefined() {
			secret := &corev1.Secret{}
			if err := user.Get(ctx, client.ObjectKey{Namespace: demoNamespace, Name: f.ContentFrom.Secret.Name},
				secret); err != nil {
				return err
			}
			content = secret.Data[f.ContentFrom.Secret.Key]
		}
		if f.Path == contract.PathSetup {
			content = bytes.Join(append(bytes.SplitAfterN(content, []byte("\n"), 3)[:2], []byte("...\n")), nil)
		}
		_, _ = fmt.Fprintf(out, "\n%s (%s)\n%s", f.Path, f.Permissions, indent(hideUserinfo(content)))
	}
	_, _ = fmt.Fprint(out, "\nCommands before kubeadm\n"+indent([]byte(strings.Join(spec.PreKubeadmCommands, "\n")+"\n")))
	return nil
}

// hideUserinfo replaces the userinfo of every URL by xxxxx.
func hideUserinfo(text []byte) []byte {
	return regexp.MustCompile(`://[^@/"]+@`).ReplaceAll(text, []byte("://xxxxx@"))
}

func indent(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString("    " + line)
	}
	return b.String()
}
