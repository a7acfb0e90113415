package plan

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Codes of notes: commands before there are files, a program that drops variables, user data that a node fetches, a
// host outside that kube-apiserver asks directly, and a private host that is asked through the proxy.
const (
	CodeBootCommands    finding.Code = "boot-commands"
	CodeSudo            finding.Code = "sudo"
	CodeEarlyFetch      finding.Code = "early-fetch"
	CodeAPIServerDirect finding.Code = "api-server-direct"
	CodeHostProxied     finding.Code = "host-proxied"
)

// Booted is a bootstrap spec that gets the proxy, with the targets of its recipe, the options of its Cluster, its
// settings (the zero value if they are not known), and what its machine template says.
type Booted struct {
	patch.Spec

	// Own is the whole spec.
	Own        *bootstrapv1.KubeadmConfigSpec
	Targets    []contract.Target
	Options    settings.Options
	Resolution *settings.Resolution
	Early      Early
}

// Early reports what nodes fetch before files are written, by the format of their bootstrap data.
type Early struct{ CloudInit, Ignition bool }

// KindAWS is the kind of machine template that has an Early.
const KindAWS = "AWSMachineTemplate"

// EarlyOf reads a machine template, decoded from JSON, as UseSecretsManager and UseIgnition of Cluster API's provider
// for AWS do.
func EarlyOf(kind string, template map[string]any) Early {
	spec := child(template, "spec", "template", "spec")
	ignition := child(spec, "ignition")
	return Early{
		CloudInit: kind == KindAWS && ignition == nil && child(spec, "cloudInit")["insecureSkipSecretsManager"] != true,
		Ignition:  kind == KindAWS && ignition["proxy"] == nil && ignition["storageType"] != "UnencryptedUserData",
	}
}

// rules find what a spec asks for and does not get. What find adds begins the message.
var rules = []struct { //nolint:gochecknoglobals // a constant
	code            finding.Code
	message, advice string
	find            func(b Booted, add func(place finding.Place, what string))
}{
	{
		CodeBootCommands, "run before files are written, and have no proxy", "use preKubeadmCommands for what needs it",
		func(b Booted, add func(finding.Place, string)) {
			if len(b.Own.BootCommands) > 0 && b.gets(contract.TargetCommands) {
				add(finding.Field("bootCommands"), "they")
			}
		},
	},
	{
		CodeSudo, "takes the proxy variables away", "leave it out, as commands run as root, or write sudo -E",
		func(b Booted, add func(finding.Place, string)) {
			own := patch.Apply(b.Spec, patch.Remove(b.Spec))
			for list, commands := range [][]string{own.PreKubeadmCommands, own.PostKubeadmCommands} {
				for i, command := range commands {
					at := finding.Field(string([]patch.List{patch.ListPre, patch.ListPost}[list])).Index(i)
					match := elevated.FindStringSubmatch(command)
					if match != nil && !keeps.MatchString(match[2]) && b.gets(contract.TargetCommands) {
						add(at, strings.Fields(match[1])[0])
					}
				}
			}
		},
	},
	{
		CodeEarlyFetch, "before files are written, so without the proxy", "make an endpoint of that service in the VPC, or " +
			"set cloudInit.insecureSkipSecretsManager: true and uncompressedUserData: false in the AWSMachineTemplate",
		func(b Booted, add func(finding.Place, string)) {
			if b.Early.CloudInit && b.Format != string(bootstrapv1.Ignition) && b.gets(contract.TargetContainerd) {
				add(finding.Place{}, "nodes fetch user data from AWS Secrets Manager or the SSM parameter store")
			}
		},
	},
	{
		CodeEarlyFetch, "before files are written, so without the proxy", "set ignition.proxy in the AWSMachineTemplate, " +
			"and ignition.tls if it needs a certificate, or make an endpoint of S3 in the VPC",
		func(b Booted, add func(finding.Place, string)) {
			if b.Early.Ignition && b.Format == string(bootstrapv1.Ignition) && b.gets(contract.TargetContainerd) {
				add(finding.Place{}, "Ignition fetches its configuration from S3")
			}
		},
	},
	{
		CodeAPIServerDirect, "is asked by kube-apiserver, which has no proxy", "target static-pods changes that: it needs " +
			"a proxy without credentials and the networks of the nodes in NO_PROXY; or set the variables in apiServer.extraEnvs",
		func(b Booted, add func(finding.Place, string)) {
			b.eachProxied(add, func(h kinds.Host, asks, private bool) bool { return h.Outside && !asks && !private })
		},
	},
	{
		CodeHostProxied, "is asked through the proxy", "add its host to noProxy, unless the proxy shall ask it",
		func(b Booted, add func(finding.Place, string)) {
			b.eachProxied(add, func(h kinds.Host, asks, private bool) bool { return asks && (private || !h.Outside) })
		},
	},
}

// Notes returns what a bootstrap spec asks for and does not get, in the order of the rules. Places are in the spec.
func Notes(b Booted) (notes []finding.Finding) {
	for _, r := range rules {
		r.find(b, func(place finding.Place, what string) {
			notes = append(notes, finding.Finding{Code: r.code, Place: place, Message: what + " " + r.message, Advice: r.advice})
		})
	}
	return notes
}

func (b Booted) gets(t contract.Target) bool { return slices.Contains(b.Targets, t) }

// eachProxied adds the chosen ones of the hosts that are no destinations of NO_PROXY. asks reports whether the client
// of a host has the proxy, private whether the host is a private address.
func (b Booted) eachProxied(add func(finding.Place, string), chosen func(h kinds.Host, asks, private bool) bool) {
	for _, h := range kinds.Hosts(b.Own) {
		asks := b.gets(h.Target) && (h.Target != contract.TargetStaticPods || b.Resolution.ReachesNodes(b.Options))
		name, proxied := b.Resolution.IsProxied(h.URL)
		address, err := netip.ParseAddrPort(name)
		if err != nil {
			only, _ := netip.ParseAddr(strings.Trim(name, "[]"))
			address = netip.AddrPortFrom(only, 0)
		}
		if proxied && chosen(h, asks, address.Addr().IsPrivate()) {
			add(h.Place, fmt.Sprintf("%s (%s)", finding.Line(name, 253), finding.Line(h.What, 253)))
		}
	}
}

var (
	// elevated finds a program that gives a command behind it another environment, with its options. It is no parser.
	elevated = regexp.MustCompile("(?:^|[;&|(){\n`]|\\b(?:then|do|else|exec|time|nohup)\\s|sh\\s+-\\w*c\\s+[\"'])" +
		`\s*(?:\w+=\S*\s+)*(?:/\S*/)?(sudo|(?:su|runuser)\s+(?:[^\s;&|]+\s+)*?(?:-l?|--login))` +
		`((?:\s+(?:-[ughp]\s+\S+|-\S+|\w+=\S*|env))*)(?:\s|$)`)
	keeps = regexp.MustCompile(`\s-[A-Za-z]*E|\s--preserve-env|(?i:_proxy=)`)
)
