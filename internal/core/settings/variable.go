package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// MaxNoProxy is how many entries the field noProxy of the variable may have. Their total size is limited by the size of
// an environment string (see noproxy.CodeTooLong).
const MaxNoProxy = 1000

// maxVariable is how many bytes of JSON a value of the variable may have. It holds MaxNoProxy entries of 300 characters
// twice.
const maxVariable = 1 << 20

// Variable is a value of the variable capiProxyPatcher. The zero value of a field means that it is not set.
type Variable struct {
	// SecretName names the proxy Secret, or is contract.SecretNone.
	SecretName string
	// Targets are in the order of contract.Targets, each once.
	Targets []contract.Target
	// NoProxy are additional entries of NO_PROXY, one each.
	NoProxy []string
}

// ParseVariable reads a value of the variable in JSON. No value and null are the empty one. Field names are compared
// exactly, and an unknown one is an error.
//
// Its error is finding.Errors, whose places begin with the name of the variable. They contain no entry of noProxy. The
// fields that could be read are returned with the error.
func ParseVariable(raw []byte) (Variable, error) {
	v, found := parse(finding.Option(contract.VariableName), raw)
	return v, found.Err()
}

// parse is ParseVariable with the place of the variable.
func parse(at finding.Place, raw []byte) (Variable, finding.Errors) {
	var v Variable
	if len(bytes.TrimSpace(raw)) == 0 {
		return v, nil
	}
	if len(raw) > maxVariable {
		return v, finding.Errors{finding.Rejection(CodeBadVariable, at,
			fmt.Sprintf("has %d bytes, but at most %d are allowed", len(raw), maxVariable),
			"write networks or suffixes instead of single hosts")}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return v, finding.Errors{finding.Rejection(CodeBadVariable, at, "is not an object",
			"see the schema of the variable in the ClusterClass's status")}
	}
	p := parser{at: at}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		if string(value) == "null" {
			continue
		}
		switch name {
		case contract.VariableSecretName:
			v.SecretName = p.secretName(value)
		case contract.VariableTargets:
			v.Targets = p.targets(value)
		case contract.VariableNoProxy:
			v.NoProxy = p.noProxy(value)
		default:
			p.reject(at.Item(strconv.Quote(name)), "is not a field of the variable",
				"the fields are secretName, targets and noProxy")
		}
	}
	return v, p.found
}

// parser reads the fields of one variable.
type parser struct {
	at    finding.Place
	found finding.Errors
}

func (p *parser) reject(place finding.Place, message, advice string) {
	p.found = append(p.found, finding.Rejection(CodeBadVariable, place, message, advice))
}

func (p *parser) text(field string, raw []byte) (string, bool) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		p.reject(p.at.Child(field), "is not a string", "")
		return "", false
	}
	return text, true
}

func (p *parser) texts(field string, raw []byte) ([]string, bool) {
	var items []*string
	if err := json.Unmarshal(raw, &items); err != nil {
		p.reject(p.at.Child(field), "is not an array of strings", "")
		return nil, false
	}
	texts := make([]string, len(items))
	for i, item := range items {
		if item == nil {
			p.reject(p.at.Child(field).Index(i), "is not a string", "")
			return nil, false
		}
		texts[i] = *item
	}
	return texts, true
}

func (p *parser) secretName(raw []byte) string {
	name, readable := p.text(contract.VariableSecretName, raw)
	if !readable {
		return ""
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		p.reject(p.at.Child(contract.VariableSecretName), "is not the name of a Secret",
			"write lower-case letters, digits, hyphens and dots")
		return ""
	}
	return name
}

func (p *parser) targets(raw []byte) []contract.Target {
	const fix = "use containerd, kubelet, commands, trust and static-pods"
	names, readable := p.texts(contract.VariableTargets, raw)
	if !readable {
		return nil
	}
	if len(names) == 0 {
		p.reject(p.at.Child(contract.VariableTargets), "is empty", fix+
			", or remove the field to have all of them but static-pods")
		return nil
	}
	known := contract.AllTargets()
	for i, name := range names {
		if !slices.Contains(known, contract.Target(name)) {
			p.reject(p.at.Child(contract.VariableTargets).Index(i), fmt.Sprintf("%q is not a target", name), fix)
		}
	}
	return slices.DeleteFunc(known, func(t contract.Target) bool { return !slices.Contains(names, string(t)) })
}

func (p *parser) noProxy(raw []byte) []string {
	entries, readable := p.texts(contract.VariableNoProxy, raw)
	if !readable {
		return nil
	}
	if len(entries) > MaxNoProxy {
		p.reject(p.at.Child(contract.VariableNoProxy),
			fmt.Sprintf("has %d entries, but at most %d are allowed", len(entries), MaxNoProxy),
			"write networks or suffixes instead of single hosts")
		return nil
	}
	single := true
	for i, entry := range entries {
		// A list inside an item, or an empty item, would shift the positions in messages.
		if entry == "-" || strings.ContainsAny(entry, ", \t\r\n") || entry == "" {
			p.reject(p.at.Child(contract.VariableNoProxy).Index(i), "is not a single entry",
				"write each entry as an item of its own")
			single = false
		}
	}
	if !single {
		return entries
	}
	_, err := noproxy.Compose(noproxy.Input{User: noproxy.Layer{Text: strings.Join(entries, "\n")}})
	for _, rejected := range finding.Of(err) {
		place := p.at.Child(contract.VariableNoProxy)
		if rejected.Place.Entry > 0 {
			place = place.Index(rejected.Place.Entry - 1)
		}
		rejected.Place = place
		p.found = append(p.found, rejected)
	}
	return entries
}
