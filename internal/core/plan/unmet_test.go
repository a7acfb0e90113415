package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// TestNotes_AreWhatASpecAsksForAndDoesNotGet has specs whose notes are their code, place and message up to the first
// blank.
func TestNotes_AreWhatASpecAsksForAndDoesNotGet(t *testing.T) {
	t.Parallel()
	const (
		oidc      = "clusterConfiguration: {apiServer: {extraArgs: [{name: oidc-issuer-url, value: 'https://login.example.net/v2.0'}]}}\n"
		issuer    = "api-server-direct: clusterConfiguration.apiServer.extraArgs[0]: login.example.net"
		config    = "clusterConfiguration: {apiServer: {extraArgs: [{name: authentication-config, value: /etc/kubernetes/auth.yaml}]}}\n"
		outsider  = "api-server-direct: files[0]: "
		pre, post = "preKubeadmCommands: [", "postKubeadmCommands: ["
		registry  = "host-proxied: files[0]: "
		pod       = "files: [{path: /etc/kubernetes/manifests/vip.yaml, content: "
		early     = "early-fetch: nodes"
	)
	static := append(contract.Targets(), contract.TargetStaticPods)
	aws := func(spec string) plan.Early { return earlyOf(t, "AWSMachineTemplate", spec) }
	for name, test := range map[string]struct {
		spec    string
		targets []contract.Target
		proxy   string // "" is one for both schemes
		early   plan.Early
		want    []string
		wrong   bool // some fields have another type than those of the API
	}{
		"nothing": {},

		"boot commands":                   {spec: "bootCommands: [a, b]", want: []string{"boot-commands: bootCommands: they"}},
		"boot commands, another target":   {spec: "bootCommands: [a]", targets: []contract.Target{contract.TargetContainerd}},
		"no boot commands":                {spec: "bootCommands: []"},
		"sudo":                            {spec: pre + "a, sudo apt-get update]", want: []string{"sudo: preKubeadmCommands[1]: sudo"}},
		"sudo after":                      {spec: post + "'a && sudo apt update; sudo b']", want: []string{"sudo: postKubeadmCommands[0]: sudo"}},
		"sudo in a shell":                 {spec: pre + `'bash -c "sudo apt update"']`, want: []string{"sudo: preKubeadmCommands[0]: sudo"}},
		"sudo by its path":                {spec: pre + "DEBIAN_FRONTEND=noninteractive /usr/bin/sudo apt update]", want: []string{"sudo: preKubeadmCommands[0]: sudo"}},
		"sudo in a condition":             {spec: pre + "if true; then sudo -u root apt update; fi]", want: []string{"sudo: preKubeadmCommands[0]: sudo"}},
		"sudo as another user":            {spec: pre + "sudo -u app curl x]", want: []string{"sudo: preKubeadmCommands[0]: sudo"}},
		"sudo -E":                         {spec: pre + "sudo -E apt update, sudo -nE a, sudo -u root -E a, sudo --preserve-env=HTTPS_PROXY a]"},
		"sudo with its own proxy":         {spec: pre + "sudo HTTPS_PROXY=http://p:1 a, sudo env https_proxy=http://p:1 a]"},
		"sed -E behind sudo":              {spec: pre + "sudo sed -E s/a/b/ f]", want: []string{"sudo: preKubeadmCommands[0]: sudo"}},
		"sudo as a word":                  {spec: pre + "apt-get install -y sudo, echo sudo, rm /etc/sudoers.d/sudo, pseudo a, sudoedit f]"},
		"sudo, another target":            {spec: pre + "sudo a]", targets: []contract.Target{contract.TargetContainerd}},
		"login shells":                    {spec: pre + "su - app -c a, su app -l -c a, runuser -l app -c a]", want: []string{"sudo: preKubeadmCommands[0]: su", "sudo: preKubeadmCommands[1]: su", "sudo: preKubeadmCommands[2]: runuser"}},
		"other shells keep the variables": {spec: pre + "su app -c a, su -c 'ls -l' app, runuser -u app a, subscription-manager -l]"},

		"an issuer outside":           {spec: oidc, want: []string{issuer}},
		"an issuer in NO_PROXY":       {spec: strings.Replace(oidc, "login.example.net", "login.corp.example.com", 1)},
		"an issuer in the Cluster":    {spec: strings.Replace(oidc, "login.example.net", "dex.auth.svc", 1)},
		"a private issuer":            {spec: strings.Replace(oidc, "login.example.net", "192.168.1.4:5556", 1)},
		"static Pods":                 {spec: oidc, targets: static},
		"static Pods, a private one":  {spec: strings.Replace(oidc, "login.example.net", "192.168.1.4:5556", 1), targets: static, want: []string{"host-proxied: clusterConfiguration.apiServer.extraArgs[0]: 192.168.1.4:5556"}},
		"static Pods, credentials":    {spec: oidc, targets: static, proxy: "http://u:p@p:1", want: []string{issuer}},
		"variables of its own":        {spec: strings.Replace(oidc, "extraArgs", "extraEnvs: [{name: HTTPS_PROXY, value: 'http://p:1'}], extraArgs", 1)},
		"another argument":            {spec: strings.Replace(oidc, "oidc-issuer-url", "service-account-issuer", 1)},
		"an authentication":           {spec: config + "files: [{path: /etc/kubernetes/auth.yaml, content: \"# url: https://no.example.net\\njwt:\\n- issuer:\\n    url: https://login.example.net\\n\"}]", want: []string{outsider + "login.example.net"}},
		"an authentication inside":    {spec: config + "files: [{path: /etc/kubernetes/auth.yaml, content: \"jwt: [{issuer: {url: 'https://dex.corp.example.com'}}]\"}]"},
		"a file of something else":    {spec: config + "files: [{path: /etc/other.yaml, content: \"server: https://login.example.net\"}]"},
		"a file that names a webhook": {spec: strings.Replace(config, "authentication-config", "authorization-config", 1) + "files: [{path: /etc/w.conf, content: 'server: https://opa.example.net:8443/v1'}, {path: /etc/kubernetes/auth.yaml, content: '{kubeConfigFile: /etc/w.conf}'}]", want: []string{outsider + "opa.example.net:8443"}},
		"a file that is encoded":      {spec: config + "files: [{path: /etc/kubernetes/auth.yaml, encoding: base64, content: 'url: https://login.example.net'}]"},

		"registries of kubeadm": {
			spec: "clusterConfiguration: {imageRepository: harbor.example.net/k8s, dns: {imageRepository: dns.example.net}, etcd: {local: {imageRepository: 'etcd.example.net:5000/a'}}}",
			want: []string{
				"host-proxied: clusterConfiguration.dns.imageRepository: dns.example.net", "host-proxied: clusterConfiguration.etcd.local.imageRepository: etcd.example.net:5000",
				"host-proxied: clusterConfiguration.imageRepository: harbor.example.net",
			},
		},
		"one for all":                {spec: "clusterConfiguration: {imageRepository: harbor.example.net/k8s, dns: {imageRepository: harbor.example.net/dns}}", want: []string{"host-proxied: clusterConfiguration.dns.imageRepository: harbor.example.net"}},
		"one in NO_PROXY":            {spec: "clusterConfiguration: {imageRepository: harbor.corp.example.com/k8s}"},
		"public ones":                {spec: "clusterConfiguration: {imageRepository: registry.k8s.io, dns: {imageRepository: europe-docker.pkg.dev/a}, etcd: {local: {imageRepository: 1.dkr.ecr.eu-west-1.amazonaws.com/a}}}"},
		"Docker Hub":                 {spec: "clusterConfiguration: {imageRepository: library/k8s}"},
		"a name that ends like one":  {spec: "clusterConfiguration: {imageRepository: notquay.io/a}", want: []string{"host-proxied: clusterConfiguration.imageRepository: notquay.io"}},
		"a variable":                 {spec: "clusterConfiguration: {imageRepository: '${REGISTRY:=a.b}/k8s'}"},
		"containerd has no proxy":    {spec: "clusterConfiguration: {imageRepository: harbor.example.net/k8s}", targets: []contract.Target{contract.TargetKubelet}},
		"another type":               {wrong: true, spec: "clusterConfiguration: {imageRepository: 5, etcd: []}\nbootCommands: x"},
		"no proxy for http":          {spec: "files: [{path: /etc/containerd/certs.d/_default/hosts.toml, content: '[host.\"http://10.9.9.9:5000\"]'}]", proxy: "https"},
		"a mirror":                   {spec: "files: [{path: /etc/containerd/certs.d/docker.io/hosts.toml, content: \"[host.'10.9.9.9:5000']\"}]", want: []string{registry + "10.9.9.9:5000"}},
		"containerd's configuration": {spec: "files: [{path: /etc/containerd/config.toml, content: \"sandbox_image = 'pause.example.net/p:1'\\nendpoint = ['http://m.example.net:5000']\\n# endpoint = ['https://n.example.net']\"}]", want: []string{registry + "pause.example.net", registry + "m.example.net:5000"}},
		"images of a static Pod":     {spec: pod + "'{containers: [{image: a.example.net/a}, {image: \"b.example.net/b@sha256:1\"}, {image: kube-vip:v1}, {image: ghcr.io/kube-vip/kube-vip}]}'}]", want: []string{registry + "a.example.net", registry + "b.example.net"}},
		"a static Pod as a comment":  {spec: pod + "\"  # image: a.example.net/a\\n  imagePullPolicy: a.example.net/a\"}]"},
		"a pause image":              {spec: "joinConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: pod-infra-container-image, value: pause.example.net/p}]}}", want: []string{"host-proxied: joinConfiguration.nodeRegistration.kubeletExtraArgs[0]: pause.example.net"}},
		"external etcd":              {spec: "clusterConfiguration: {etcd: {external: {endpoints: ['https://192.168.1.9:2379']}}}"},
		"external etcd, static Pods": {spec: "clusterConfiguration: {etcd: {external: {endpoints: ['https://192.168.1.9:2379', 'https://e.corp.example.com:2379']}}}", targets: static, want: []string{"host-proxied: clusterConfiguration.etcd.external.endpoints[0]: 192.168.1.9:2379"}},

		"AWS":                          {early: aws("{instanceType: a}"), want: []string{early}},
		"AWS, a secret backend":        {early: aws("{cloudInit: {secureSecretsBackend: ssm-parameter-store}}"), want: []string{early}},
		"AWS, plain user data":         {early: aws("{cloudInit: {insecureSkipSecretsManager: true}, uncompressedUserData: false}")},
		"AWS, Ignition":                {spec: "format: ignition", early: aws("{}"), want: []string{"early-fetch: Ignition"}},
		"AWS, Ignition with a proxy":   {spec: "format: ignition", early: aws("{ignition: {proxy: {httpsProxy: 'http://p:1'}}}")},
		"AWS, Ignition in user data":   {spec: "format: ignition", early: aws("{ignition: {storageType: UnencryptedUserData}}")},
		"AWS, Ignition in the bucket":  {spec: "format: ignition", early: aws("{ignition: {version: '3.4', storageType: ClusterObjectStore}}"), want: []string{"early-fetch: Ignition"}},
		"another provider":             {early: earlyOf(t, "DockerMachineTemplate", "{}")},
		"another provider, Ignition":   {spec: "format: ignition", early: earlyOf(t, "VSphereMachineTemplate", "{}")},
		"a template of another schema": {early: plan.EarlyOf("AWSMachineTemplate", map[string]any{"spec": 5}), want: []string{early}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var own bootstrapv1.KubeadmConfigSpec
			if text, err := yaml.YAMLToJSON([]byte(test.spec)); err != nil || kinds.Decode(text, &own) != nil && !test.wrong {
				t.Fatal(err)
			}
			b := kinds.ViewOf(&own)
			data := map[string][]byte{"httpProxy": []byte("http://p:1")}
			switch test.proxy {
			case "":
			case "https":
				data = map[string][]byte{"httpsProxy": []byte("http://p:1")}
			default:
				data["httpProxy"] = []byte(test.proxy)
			}
			proxy, err := settings.ParseSecret(data)
			if err != nil {
				t.Fatal(err)
			}
			booted := plan.Booted{Spec: b, Own: &own, Targets: test.targets, Early: test.early}
			if booted.Targets == nil {
				booted.Targets = contract.Targets()
			}
			booted.Options = settings.Options{Targets: booted.Targets}
			booted.Resolution = &settings.Resolution{Settings: proxy, NoProxy: noproxy.Result{Value: ".svc,.corp.example.com"}}
			var got []string
			for _, f := range plan.Notes(booted) {
				if f.Advice == "" || f.Reason != "" {
					t.Errorf("%+v", f)
				}
				what, _, _ := strings.Cut(f.Message, " ")
				at := string(f.Code) + ": "
				if !f.Place.IsZero() {
					at += f.Place.String() + ": "
				}
				got = append(got, at+what)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			before := plan.Notes(booted)
			recipe, err := patch.NewRecipe(patch.Options{Targets: booted.Targets, SecretName: "s"})
			if err != nil {
				t.Fatal(err)
			}
			patched, err := patch.Ensure(b, recipe)
			if err != nil {
				t.Fatal(err)
			}
			booted.Spec = patch.Apply(b, patched.Edits)
			if diff := cmp.Diff(before, plan.Notes(booted)); diff != "" {
				t.Errorf("patched (-before +after):\n%s", diff)
			}
		})
	}
}

// earlyOf is what a machine template says.
func earlyOf(t *testing.T, kind, spec string) plan.Early {
	t.Helper()
	var template map[string]any
	if err := yaml.Unmarshal([]byte("spec: {template: {spec: "+spec+"}}"), &template); err != nil {
		t.Fatal(err)
	}
	return plan.EarlyOf(kind, template)
}
