package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

const unlabelled = string(settings.CodeUnlabelledSecret)

// cluster checks the Cluster of the options.
func (c *checker) cluster() []one {
	return []one{
		{CodeClusterLabel, c.label},
		{CodeClusterSecret, c.secret},
		{CodeClusterReport, c.ofRow(c.conditionOf)},
		{CodePublished, c.published},
		{CodeMachines, c.ofRow(machinesOf)},
		{CodeAddresses, c.addresses},
	}
}

// label checks what the user has written on the Cluster.
func (c *checker) label(ctx context.Context) Result {
	cluster := &clusterv1.Cluster{}
	if err := c.Client.Get(ctx, c.Cluster, cluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			result := failed("Cluster %s does not exist", c.Cluster)
			result.Do = "correct the name or --namespace" + c.others(ctx)
			if c.FromNodes != nil && c.FromNodes.Node == AllNodes {
				result.Do += "; a node is --from-nodes=" + c.Cluster.Name
			}
			return result
		}
		return unread(err)
	}
	view := settings.ClusterOf(cluster)
	asked, err := settings.Of(cluster)
	if err == nil && asked.SecretName != "" {
		err = settings.CheckSecretName(asked.SecretName, "")
	}
	if err = cmp.Or(view.Unclear, err); err != nil {
		result := failed("%v", err)
		if codes := finding.Of(err); len(codes) > 0 && codes[0].Code != "" {
			result.Link = kit.Link(string(codes[0].Code))
		}
		return result
	}
	if !view.Enabled {
		result := failed("Cluster %s has no label %s=%s", c.Cluster, contract.LabelEnabled, contract.LabelEnabledValue)
		result.Do = fmt.Sprintf("kubectl -n %s label cluster %s %s=%s --overwrite", cluster.Namespace, cluster.Name,
			contract.LabelEnabled, contract.LabelEnabledValue)
		return result
	}
	if unused := settings.CheckNames(cluster.Labels, settings.SourceOf(cluster)); len(unused) > 0 {
		result := warning("%v", finding.Errors(unused))
		result.Link = kit.Link(string(unused[0].Code))
		return result
	}
	return ok("label and annotations can be used")
}

// others names Clusters that a user may have meant: the one with the nearest name first, then those of the namespace.
func (c *checker) others(ctx context.Context) string {
	var own, all clusterv1.ClusterList // of somebody without a right, none
	_ = c.Client.List(ctx, &own, client.InNamespace(c.Cluster.Namespace), maxList)
	_ = c.Client.List(ctx, &all, maxList)
	var found, bare []string
	for _, cluster := range slices.Concat(own.Items, all.Items) {
		if key := client.ObjectKeyFromObject(&cluster).String(); !slices.Contains(found, key) {
			found, bare = append(found, key), append(bare, cluster.Name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	if i := slices.Index(bare, finding.NearestName(c.Cluster.Name, bare)); i > 0 {
		nearest := found[i]
		found = slices.Insert(slices.Delete(found, i, i+1), 0, nearest)
	}
	return "; found: " + finding.Few(found)
}

// ofRow is a check of what status says about the Cluster.
func (c *checker) ofRow(judge func(context.Context, reported.Row) Result) func(context.Context) Result {
	return func(ctx context.Context) Result {
		read, err := c.Rows(ctx, c.Cluster)
		switch {
		case err != nil:
			return unread(err)
		case len(read.Rows) == 0:
			return skipped("the Cluster is not labelled")
		}
		return judge(ctx, read.Rows[0])
	}
}

func (c *checker) secret(ctx context.Context) Result {
	read, err := c.Rows(ctx, c.Cluster)
	switch {
	case err != nil:
		return unread(err)
	case read.NoSecrets:
		return skipped("missing right: list secrets")
	case len(read.Rows) == 0:
		return skipped("the Cluster is not labelled")
	}
	row := read.Rows[0]
	switch {
	case row.Warning != "":
		result := warning("the settings have warning %s", row.Warning)
		result.Link = kit.Link(row.Warning)
		if namespace, name, named := strings.Cut(row.Secret, "/"); named && row.Warning == unlabelled {
			result.Do = labelSecret(namespace, name)
		}
		return result
	case row.Secret == "":
		return skipped("no proxy Secret is in use")
	case !row.IsTrue():
		return skipped("whether Secret %s is in use is not known: condition %s is not True", row.Secret,
			contract.ConditionProxyConfigured)
	}
	return ok("Secret %s is in use", row.Secret)
}

func labelSecret(namespace, name string) string {
	return fmt.Sprintf("kubectl -n %s label secret %s %s=", namespace, name, contract.LabelProxySecret)
}

// conditionOf repeats what the controller reports.
func (c *checker) conditionOf(ctx context.Context, row reported.Row) Result {
	switch {
	case row.Paused:
		result := warning("the Cluster is paused, so no manager changes anything")
		result.Link = kit.Link(contract.ReasonPaused)
		result.Do = "unpause it: remove spec.paused and annotation " + clusterv1.PausedAnnotation
		return result
	case row.Reason == "" && row.Disabled:
		return skipped("the Cluster is disabled by its label")
	case row.Reason == "":
		result := failed("the Cluster has no condition %s", contract.ConditionProxyConfigured)
		result.Do = "see whether a manager runs and serves it: --namespace and --watch-filter of the manager"
		return result
	case row.IsTrue():
		return ok("%s", row.Reason)
	}
	result := reasonOf(row.Reason, row.Message)
	if row.Reason == contract.ReasonSettingsNotFound {
		for _, name := range []string{row.Name + contract.ClusterSecretSuffix, contract.DefaultSecretName} {
			secret := &metav1.PartialObjectMetadata{}
			secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			err := c.Client.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: name}, secret)
			if _, has := secret.Labels[contract.LabelProxySecret]; err == nil && !has {
				result.Do = labelSecret(row.Namespace, name)
				break
			}
		}
	}
	return result
}

// reasonOf returns the result of a condition that is not True. Its message says what to do.
func reasonOf(reason, message string) Result {
	result := warning("%s: %s", reason, finding.OneLine(message))
	switch contract.ReasonOf(reason).Task {
	case contract.TaskWait:
		result.Do = "wait; if it stays, read the section"
	case contract.TaskRollOut:
		result.Do = "begin a rollout when it suits you"
	default:
		result.Status = Failed
	}
	result.Link = kit.Link(reason)
	return result
}

// published checks the other conditions, those of capabilities.
func (c *checker) published(ctx context.Context) Result {
	cluster := &clusterv1.Cluster{}
	if err := c.Client.Get(ctx, c.Cluster, cluster); client.IgnoreNotFound(err) != nil {
		return unread(err)
	}
	result := skipped("the Cluster publishes nothing")
	for _, condition := range cluster.Status.Conditions {
		switch {
		case !slices.Contains(contract.Conditions()[1:], condition.Type):
		case condition.Status != metav1.ConditionTrue:
			return reasonOf(condition.Reason, condition.Message)
		default:
			result = ok("%s", condition.Reason)
		}
	}
	return result
}

func machinesOf(_ context.Context, row reported.Row) Result {
	switch {
	case row.IsBehind():
		count := 0
		for _, group := range row.Behind {
			count += group.Machines
		}
		return warning("%d Machines have outdated proxy settings", count)
	case !row.IsCurrent():
		return skipped("which Machines are behind is not known")
	}
	return ok("no Machine is behind")
}

// maxAddresses bounds how many addresses are compared.
const maxAddresses = 1000

// address is where somebody inside the cluster's own networks can be reached.
type address struct{ host, where string }

// addresses compares what Machines and the infrastructure object report with NO_PROXY: who asks the proxy for an
// internal address gets an error, or waits.
func (c *checker) addresses(ctx context.Context) Result {
	found, err := c.reported(ctx)
	if apierrors.IsNotFound(err) {
		return skipped("the Cluster does not exist")
	} else if err != nil {
		return unread(err)
	}
	if len(found) == 0 {
		return skipped("neither Machines nor the infrastructure object report internal addresses yet")
	}
	if len(c.Clients) == 0 {
		return skipped("this program does not know how others read NO_PROXY")
	}
	noProxy, err := c.NoProxy(ctx)
	if err != nil {
		return skipped("NO_PROXY is not known: %v", err)
	}
	var proxied []string
	for _, one := range found {
		var clients []string
		for _, program := range c.Clients {
			if program.Proxied(noProxy, "https://"+net.JoinHostPort(one.host, "443")) {
				clients = append(clients, program.Name)
			}
		}
		if len(clients) > 0 {
			proxied = append(proxied, one.host+" of "+one.where+" ("+strings.Join(clients, ", ")+")")
		}
	}
	if len(proxied) > 0 {
		return warning("internal addresses would be asked for through the proxy: %s", finding.Few(proxied))
	}
	return ok("%d internal addresses are reached directly", len(found))
}

// reported returns internal addresses, each once.
func (c *checker) reported(ctx context.Context) ([]address, error) {
	cluster := &clusterv1.Cluster{}
	if err := c.Client.Get(ctx, c.Cluster, cluster); err != nil {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	var found []address
	add := func(host, where string) {
		if len(found) < maxAddresses && !slices.ContainsFunc(found, func(a address) bool { return a.host == host }) {
			found = append(found, address{host, where})
		}
	}
	var machines clusterv1.MachineList
	if err := c.Client.List(ctx, &machines, client.InNamespace(c.Cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.Cluster.Name}, maxList); err != nil {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	for _, machine := range machines.Items {
		for _, one := range machine.Status.Addresses {
			named := one.Type == clusterv1.MachineInternalIP || one.Type == clusterv1.MachineInternalDNS
			if named || internal(one.Address) != "" {
				add(one.Address, "Machine "+machine.Name)
			}
		}
	}
	ref := cluster.Spec.InfrastructureRef
	mapping, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return found, nil //nolint:nilerr // the provider is not installed
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Cluster.Namespace, Name: ref.Name}, object); err != nil {
		return found, client.IgnoreNotFound(err) //nolint:wrapcheck // the result is the error
	}
	walk([]any{object.Object["spec"], object.Object["status"]}, func(text string) {
		if host := internal(text); host != "" {
			add(host, ref.Kind+" "+ref.Name)
		}
	})
	return found, nil
}

// internal returns an address if a text is a private one, or a private network; else "".
func internal(text string) string {
	if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Bits() > 0 {
		text = prefix.Masked().Addr().Next().String()
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.IsPrivate() {
		return ip.String()
	}
	return ""
}

// walk calls f for every text in a value of JSON.
func walk(value any, f func(text string)) {
	switch value := value.(type) {
	case string:
		f(value)
	case []any:
		for _, one := range value {
			walk(one, f)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			walk(value[key], f)
		}
	}
}
