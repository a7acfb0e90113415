package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
)

// Data is a result for programs.
type Data struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Note says why the controller configures no proxy for the Cluster, "" if it does.
	Note string `json:"note,omitempty"`
	// Writes are the controller's, in their order.
	Writes []Write `json:"writes"`
	// Replaced are the Machines that are replaced at once, InPlace the nodes that are changed in place, Behind the
	// Machines that stay unchanged.
	Replaced []Roll           `json:"replaced"`
	InPlace  []InPlace        `json:"inPlace"`
	Behind   []outdated.Group `json:"behind"`
	// Before and After are the condition; nil is none.
	Before *Condition `json:"before,omitempty"`
	After  *Condition `json:"after,omitempty"`
}

// Condition is condition ProxyConfigured.
type Condition struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Data returns the result for programs.
func (r Result) Data() Data {
	return Data{
		Version: 1, Namespace: r.Before.Namespace, Cluster: r.Before.Name, Note: r.Hint,
		Writes: append([]Write{}, r.Writes...), Replaced: append([]Roll{}, r.Rolls...),
		InPlace: append([]InPlace{}, r.InPlace...), Behind: r.left(),
		Before: conditionOf(finding.Condition{Status: r.Before.Status, Reason: r.Before.Reason, Message: r.Before.Message}),
		After:  conditionOf(r.Condition),
	}
}

func conditionOf(c finding.Condition) *Condition {
	if c.Reason == "" {
		return nil
	}
	return &Condition{c.Status, c.Reason, c.Message}
}

// left are the groups of Machines that are behind, and are neither replaced nor changed in place.
func (r Result) left() []outdated.Group {
	left := []outdated.Group{}
	for _, group := range r.behind() {
		if slices.ContainsFunc(r.Rolls, func(roll Roll) bool { return roll.Kind == group.Kind && roll.Name == group.Name }) {
			continue
		}
		machines := slices.DeleteFunc(slices.Clone(group.Machines), func(m outdated.Machine) bool {
			return slices.ContainsFunc(r.InPlace, func(i InPlace) bool { return slices.Contains(i.Machines, m.Name) })
		})
		if group.Machines = machines; len(machines) > 0 {
			left = append(left, group)
		}
	}
	return left
}

// Print writes a result for people.
func (d Data) Print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Cluster %s/%s\n\n", d.Namespace, d.Cluster)
	if d.Note != "" {
		fmt.Fprintf(&b, "Note: %s.\n\n", d.Note)
	}
	b.WriteString("The controller writes:\n")
	for _, write := range d.Writes {
		what := ""
		if write.Verb == "patch" && !write.Spec {
			what = " (metadata only)"
		}
		fmt.Fprintf(&b, "  %s %s %s%s\n", write.Verb, write.Kind, write.Name, what)
	}
	none(&b, len(d.Writes))
	b.WriteString("\nMachines that are replaced at once:\n")
	for _, roll := range d.Replaced {
		fmt.Fprintf(&b, "  %d of %s %s, because %s: %s\n", len(roll.Machines), roll.Kind, roll.Name, roll.Why,
			strings.Join(roll.Machines, ", "))
	}
	none(&b, len(d.Replaced))
	if len(d.InPlace) > 0 {
		b.WriteString("\nNodes that are changed in place, unless a file of others is in the way there:\n")
	}
	for _, nodes := range d.InPlace {
		fmt.Fprintf(&b, "  %d of %s %s: %s\n", len(nodes.Nodes), nodes.Kind, nodes.Name, strings.Join(nodes.Nodes, ", "))
	}
	b.WriteString("\nMachines that stay unchanged until they are replaced:\n")
	for _, group := range d.Behind {
		fmt.Fprintf(&b, "  %d of %s %s: ", len(group.Machines), group.Kind, group.Name)
		for i, machine := range group.Machines {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s (%s)", machine.Name, machine.Lag)
		}
		b.WriteString("\n")
	}
	none(&b, len(d.Behind))
	fmt.Fprintf(&b, "\nCondition now:   %s\nCondition after: %s\n", d.Before, d.After)
	if d.After != nil && d.After.Status != string(metav1.ConditionTrue) {
		b.WriteString(kit.Links(d.After.Reason))
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

func none(b *strings.Builder, count int) {
	if count == 0 {
		b.WriteString("  none\n")
	}
}

// String is a condition: a message of one line beside its reason, any other below it.
func (c *Condition) String() string {
	if c == nil {
		return "none"
	}
	text := c.Status + " " + c.Reason
	switch {
	case strings.Contains(c.Message, "\n"):
		text += ":\n  " + strings.ReplaceAll(c.Message, "\n", "\n  ")
	case c.Message != "":
		text += ": " + c.Message
	}
	return text
}
