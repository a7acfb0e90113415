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
		{CodeClusterSecret, c.ofRow(secretOf)},
		{CodeClusterReport, c.ofRow(conditionOf)},
		{CodeMachines, c.ofRow(machinesOf)},
		{CodeAddresses, c.addresses},
	}
}

// label checks what the user has written on the Cluster.
func (c *checker) label(ctx context.Context) Result {
	cluster := &clusterv1.Cluster{}
	if err := c.Client.Get(ctx, c.Cluster, cluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return failed("Cluster %s does not exist", c.Cluster)
		}
		return unread(err)
	}
	view := settings.ClusterOf(cluster)
	_, err := settings.Of(cluster)
	if err = cmp.Or(view.Unclear, err); err != nil {
		result := failed("%v", err)
		if codes := finding.Of(err); len(codes) > 0 && codes[0].Code != "" {
			result.Link = kit.Link(string(codes[0].Code))
		}
		return result
	}
	if !view.Enabled {
		return failed("Cluster %s has no label %s=%s", c.Cluster, contract.LabelEnabled, contract.LabelEnabledValue)
	}
	return ok("label and annotations can be used")
}

// ofRow is a check of what status says about the Cluster.
func (c *checker) ofRow(judge func(reported.Row) Result) func(context.Context) Result {
	return func(ctx context.Context) Result {
		rows, err := c.Rows(ctx, c.Cluster)
		switch {
		case err != nil:
			return unread(err)
		case len(rows) == 0:
			return skipped("the Cluster is not labelled")
		}
		return judge(rows[0])
	}
}

func secretOf(row reported.Row) Result {
	switch {
	case row.Warning != "":
		result := warning("the settings have warning %s", row.Warning)
		result.Link = kit.Link(row.Warning)
		if namespace, name, _ := strings.Cut(row.Secret, "/"); row.Warning == unlabelled {
			result.Do = fmt.Sprintf("kubectl label secret %s %s= -n %s", name, contract.LabelProxySecret, namespace)
		}
		return result
	case row.Secret == "":
		return skipped("no proxy Secret is in use")
	}
	return ok("Secret %s is in use", row.Secret)
}

// conditionOf repeats what the controller reports.
func conditionOf(row reported.Row) Result {
	switch {
	case row.Reason == "":
		return failed("the Cluster has no condition %s", contract.ConditionProxyConfigured)
	case row.IsTrue():
		return ok("%s", row.Reason)
	}
	result := warning("%s: %s", row.Reason, finding.OneLine(row.Message))
	switch contract.ReasonOf(row.Reason).Task {
	case contract.TaskWait:
		result.Do = "wait; if it stays, read the section"
	case contract.TaskRollOut:
		result.Do = "begin a rollout when it suits you"
	default:
		result.Status = Failed
	}
	result.Link = kit.Link(row.Reason)
	return result
}

func machinesOf(row reported.Row) Result {
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
	if err != nil {
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
		return warning("internal addresses would be asked for through the proxy: %s", names(proxied))
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
