package settings_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// secrets are those of a test, by namespace/name; reads records which were asked for.
type secrets struct {
	data  map[string]map[string]string
	fail  string
	reads []string
	// unlabelled are those without the label.
	unlabelled string
}

func (s *secrets) ReadSecret(_ context.Context, name types.NamespacedName) (*settings.Secret, error) {
	s.reads = append(s.reads, name.String())
	if name.String() == s.fail {
		return nil, errors.New("connection refused")
	}
	data, found := s.data[name.String()]
	if !found {
		return nil, nil //nolint:nilnil // the interface says so
	}
	secret := &settings.Secret{Name: name, Data: map[string][]byte{}, Watched: !strings.Contains(s.unlabelled, name.String())}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	return secret, nil
}

func proxy(name string) map[string]string {
	return map[string]string{"httpProxy": "http://" + name + ".example.com:3128"}
}

func TestResolve_FindsTheNearestSecret(t *testing.T) {
	t.Parallel()
	all := map[string]map[string]string{
		"team/one-http-proxy": proxy("own"), "team/http-proxy": proxy("namespace"), "team/chosen": proxy("chosen"), "team/pool": proxy("pool"),
		"system/default": proxy("installation"), "other/http-proxy": proxy("foreign"),
	}
	only := func(names ...string) map[string]map[string]string {
		some := map[string]map[string]string{}
		for _, name := range names {
			some[name] = all[name]
		}
		return some
	}
	system := types.NamespacedName{Namespace: "system", Name: "default"}
	for name, test := range map[string]struct {
		data                 map[string]map[string]string
		annotation, override string
		fallback             types.NamespacedName
		want                 string
		reads                []string
	}{
		"the pool's":          {all, "chosen", "pool", system, "pool", []string{"team/pool", "system/default"}},
		"the one it names":    {all, "chosen", "", types.NamespacedName{}, "chosen", []string{"team/chosen"}},
		"its own":             {all, "", "", types.NamespacedName{}, "own", []string{"team/one-http-proxy"}},
		"the namespace's":     {only("team/http-proxy", "other/http-proxy"), "", "", types.NamespacedName{}, "namespace", []string{"team/one-http-proxy", "team/http-proxy"}},
		"the installation's":  {only("system/default", "other/http-proxy"), "", "", system, "installation", []string{"team/one-http-proxy", "team/http-proxy", "system/default"}},
		"its own before that": {only("team/one-http-proxy", "system/default"), "", "", system, "own", []string{"team/one-http-proxy", "system/default"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := &secrets{data: test.data}
			cluster := settings.Cluster{
				Namespace: "team", Name: "one", EndpointHost: "cp.example.com",
				Annotations: map[string]string{contract.AnnotationSecret: test.annotation},
			}
			got, err := settings.Resolver{
				Secrets: reader,
				Default: settings.Installation{Secret: test.fallback, Namespaces: serving{"team": true}},
			}.Resolve(t.Context(),
				cluster, settings.Options{}, test.override)
			if err != nil {
				t.Fatal(err)
			}
			if want := "http://" + test.want + ".example.com:3128"; got.Settings.HTTPProxy.Reveal() != want {
				t.Errorf("got %s, want %s", got.Settings.HTTPProxy, want)
			}
			if diff := cmp.Diff(test.reads, reader.reads); diff != "" {
				t.Errorf("Secrets read (-want +got):\n%s", diff)
			}
		})
	}
}

// serving selects the namespaces with true; it does not know others.
type serving map[string]bool

func (s serving) Selects(_ context.Context, namespace string) (bool, error) {
	selected, known := s[namespace]
	if !known {
		return false, errors.New("connection refused")
	}
	return selected, nil
}

func (serving) String() string { return "proxy=yes" }

func installation(serves bool) settings.Installation {
	return settings.Installation{
		Secret:     types.NamespacedName{Namespace: "system", Name: "default"},
		Namespaces: serving{"team": serves},
	}
}

func TestResolve_MergesTheInstallationsEntriesInNamespacesThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{
		"team/http-proxy": {"httpProxy": "http://p:1"}, "system/default": {"httpProxy": "http://u:s3cret@q:1", "noProxy": "installation.example.com"},
	}}
	cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp.example.com"}
	got, err := settings.Resolver{Secrets: reader, Default: installation(false)}.Resolve(t.Context(), cluster,
		settings.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(got.NoProxy.Value, ",installation.example.com,.installation.example.com") ||
		got.Settings.HTTPProxy.Reveal() != "http://p:1" {
		t.Errorf("NO_PROXY %s, proxy %s", got.NoProxy.Value, got.Settings.HTTPProxy)
	}
}

func TestResolve_FailsWhereItCannotTellWhetherTheInstallationsSecretServes(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"system/default": proxy("y")}}
	_, err := settings.Resolver{Secrets: reader, Default: installation(true)}.Resolve(t.Context(),
		settings.Cluster{Namespace: "other", Name: "one"}, settings.Options{}, "")
	if err == nil || err.Error() != "reading Namespace other: connection refused" {
		t.Errorf("error %v", err)
	}
}

func TestResolve_PutsTheInstallationsEntriesFirst(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{
		"team/http-proxy": {"httpProxy": "http://p:1", "noProxy": "cluster.example.com shared.example.com"},
		"system/default":  {"httpProxy": "http://q:1", "noProxy": "installation.example.com,shared.example.com"},
	}}
	resolver := settings.Resolver{Secrets: reader, Default: installation(true)}
	cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp.example.com"}
	got, err := resolver.Resolve(t.Context(), cluster, settings.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	const want = ",cp.example.com,169.254.169.254,169.254.0.0/16,installation.example.com,.installation.example.com,shared.example.com,.shared.example.com,cluster.example.com,.cluster.example.com"
	if !strings.HasSuffix(got.NoProxy.Value, want) {
		t.Errorf("NO_PROXY %s does not end with %s", got.NoProxy.Value, want)
	}
	origins := got.NoProxy.Origins(1 << 16)
	for _, origin := range []string{
		"Secret system/default, key noProxy entry 1",
		"Secret team/http-proxy, key noProxy entry 1",
	} {
		if !strings.Contains(origins, origin) {
			t.Errorf("origins lack %q:\n%s", origin, origins)
		}
	}
}

func TestResolve_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	cluster := settings.Cluster{Namespace: "team", Name: "one"}
	named := cluster
	named.Annotations = map[string]string{contract.AnnotationSecret: "chosen"}
	for name, test := range map[string]struct {
		resolver settings.Resolver
		cluster  settings.Cluster
		want     string
	}{
		"no candidate": {
			settings.Resolver{Secrets: &secrets{}},
			cluster,
			"neither Secret team/one-http-proxy nor team/http-proxy exists; create one of them or name another in annotation capi-proxy-patcher.io/secret",
		},
		"the named one, whatever else there is": {
			settings.Resolver{Secrets: &secrets{data: map[string]map[string]string{
				"team/http-proxy": proxy("x"),
				"system/default":  proxy("y"),
			}}, Default: installation(true)},
			named,
			"Secret team/chosen does not exist; create it or change annotation capi-proxy-patcher.io/secret",
		},
		"the installation's": {
			settings.Resolver{
				Secrets: &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}},
				Default: installation(true),
			},
			cluster,
			"the installation-wide Secret system/default does not exist; create it or start the manager without --default-proxy-secret",
		},
		"the Cluster's own, in a namespace that the installation's does not serve": {
			settings.Resolver{
				Secrets: &secrets{data: map[string]map[string]string{"system/default": proxy("y")}},
				Default: installation(false),
			},
			cluster,
			"neither Secret team/one-http-proxy nor team/http-proxy exists; create one of them or name another in annotation capi-proxy-patcher.io/secret; " +
				"or ask an operator to let Namespace team use the installation-wide Secret, which serves namespaces by their labels (proxy=yes)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.resolver.Resolve(t.Context(), test.cluster, settings.Options{}, "")
			if !finding.Of(err).Has(contract.ReasonSettingsNotFound) || err.Error() != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	_, err := settings.Resolver{Secrets: &secrets{fail: "team/http-proxy"}}.Resolve(t.Context(), cluster,
		settings.Options{}, "")
	if err == nil || err.Error() != "reading Secret team/http-proxy: connection refused" {
		t.Errorf("a failing read gives %v", err)
	}
}

func TestResolve_RefusesWhatCannotBeASecret(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"other/http-proxy", "Proxy", "../http-proxy", "a b", "-"} {
		reader := &secrets{fail: "team/" + name}
		_, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
			settings.Options{}, name)
		if !finding.Of(err).Has(contract.ReasonInvalidSettings) ||
			!strings.Contains(err.Error(), "cannot be the name of a Secret") {
			t.Errorf("%q: error %v", name, err)
		}
	}
}

func TestResolve_NamesEveryFindingWithItsSecret(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": {
		"httpProxy":  "http://u:s3cr/et@p:1",
		"httpsProxy": "p",
	}}}
	_, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
		settings.Options{}, "")
	if !finding.Of(err).Has(contract.ReasonInvalidSettings) {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{
		"Secret team/http-proxy, key httpProxy: ",
		"; Secret team/http-proxy, key httpsProxy: ",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err.Error(), part)
		}
	}
	if strings.Contains(err.Error(), "s3cr") {
		t.Errorf("%q holds the password", err.Error())
	}
}

func TestComplete_MeansThatTheEndpointIsKnownOrUnwanted(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}}
	for name, test := range map[string]struct {
		host   string
		omit   []noproxy.Group
		expect bool
	}{
		"known":    {"cp.example.com", nil, true},
		"unknown":  {"", nil, false},
		"unwanted": {"", []noproxy.Group{noproxy.GroupEndpoint}, true},
	} {
		got, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(),
			settings.Cluster{Namespace: "team", Name: "one", EndpointHost: test.host}, settings.Options{OmitGroups: test.omit}, "")
		if err != nil || got.Complete != test.expect {
			t.Errorf("%s: complete %t, error %v", name, got.Complete, err)
		}
	}
}

// TestResolve_OfCertificatesAloneNeedsNothingOfTheNetwork and says that there is no proxy.
func TestResolve_OfCertificatesAloneNeedsNothingOfTheNetwork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data     map[string]string
		complete bool
		note     string
	}{
		"certificates": {map[string]string{"trustedCA": pki.Text(t)}, true, "Secret team/http-proxy has only key trustedCA"},
		"a proxy":      {proxy("x"), false, ""},
	} {
		reader := &secrets{data: map[string]map[string]string{"team/http-proxy": test.data}}
		got, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
			settings.Options{}, "")
		if err != nil || got.Complete != test.complete || !strings.HasPrefix(got.Note(), test.note) ||
			(got.Note() != "") != (test.note != "") {
			t.Errorf("%s: complete %t, note %q, error %v", name, got.Complete, got.Note(), err)
		}
	}
}

// TestResolve_ReadsTheListOfTheVariable beside that of the Secret.
func TestResolve_ReadsTheListOfTheVariable(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}}
	for text, want := range map[string]bool{"": false, "a.example.com": true} {
		got, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
			settings.Options{NoProxy: text}, "")
		if err != nil || strings.Contains(got.NoProxy.Value, "a.example.com") != want {
			t.Errorf("%q: NO_PROXY %q, error %v", text, got.NoProxy.Value, err)
		}
	}
}

// TestNoProxyInput_SaysWhatOfTheInfrastructureIsNotKnown of a Cluster, with a topology or without.
func TestNoProxyInput_SaysWhatOfTheInfrastructureIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind           string
		topology, read bool
		want           string
	}{
		"no kind yet":          {"", true, false, "the kind of infrastructure is not known yet"},
		"none":                 {"", false, false, ""},
		"an object not read":   {"AWSCluster", false, false, "AWSCluster a is not known yet"},
		"that of a topology":   {"AWSCluster", true, false, "AWSCluster a is not known yet"},
		"an object":            {"AWSCluster", true, true, ""},
		"one that nobody asks": {"OtherCluster", true, false, ""},
	} {
		input := settings.NoProxyInput(settings.Cluster{
			Topology: test.topology, Infrastructure: settings.Reference{Kind: test.kind, Name: "a"},
			Facts: infrastructure.Facts{Read: test.read},
		}, settings.Options{})
		got := ""
		for _, f := range input.Infrastructure.Findings {
			got += f.Message
		}
		if !strings.HasPrefix(got, test.want) || (got != "") != (test.want != "") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestWarningCodes_AreListedOnce(t *testing.T) {
	t.Parallel()
	got := settings.WarningCodes([]finding.Finding{
		{Code: "b"},
		{Code: noproxy.CodeEndpointUnset},
		{Code: "a"},
		{Code: "b"},
	})
	if got != "b,a" {
		t.Errorf("got %q", got)
	}
	secret := settings.Secret{Name: types.NamespacedName{Namespace: "team-a", Name: "proxy"}}
	for _, test := range []struct {
		warnings []finding.Finding
		want     map[string]string
	}{
		{nil, map[string]string{contract.AnnotationSource: "team-a/proxy"}},
		{[]finding.Finding{{Code: "b"}}, map[string]string{contract.AnnotationSource: "team-a/proxy", contract.AnnotationWarnings: "b"}},
	} {
		got := settings.SecretAnnotations(settings.Resolution{Secret: secret, Warnings: test.warnings})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	}
}

func TestResolve_WarnsOfCertificatesByTheClock(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": {
		"httpProxy": "http://p:1",
		"trustedCA": shortLived,
	}}}
	cluster := settings.Cluster{
		Namespace: "team", Name: "one", EndpointHost: "cp.example.com",
		PodCIDRs: []string{"10.244.0.0/16"},
	}
	for at, want := range map[string]string{"2026-12-01": "", "2027-01-05": "ca-expiring", "2027-02-01": "ca-expired"} {
		now, err := time.Parse(time.DateOnly, at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := settings.Resolver{Secrets: reader, Now: func() time.Time { return now }}.Resolve(t.Context(), cluster,
			settings.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if codes := strings.TrimPrefix(strings.ReplaceAll(settings.WarningCodes(got.Warnings), "defaults-used", ""),
			","); strings.Trim(codes, ",") != want {
			t.Errorf("on %s: warnings %q, want %q", at, codes, want)
		}
	}
}

// shortLived is an authority made for these tests, good until 2027-01-20.
const shortLived = `-----BEGIN CERTIFICATE-----
MIIBXjCCAQWgAwIBAgIBATAKBggqhkjOPQQDAjAfMR0wGwYDVQQDExRUZXN0IHBy
b3h5IGF1dGhvcml0eTAeFw0yNjAxMDEwMDAwMDBaFw0yNzAxMjAwMDAwMDBaMB8x
HTAbBgNVBAMTFFRlc3QgcHJveHkgYXV0aG9yaXR5MFkwEwYHKoZIzj0CAQYIKoZI
zj0DAQcDQgAERmz801UMN1vKy4yRKdYJnLwgE1uF+sF38rFJhw1oY/euNiH708Lm
Loh5B4e/JVpW8+vEvDCjhipTfw64MiRWKaMyMDAwDwYDVR0TAQH/BAUwAwEB/zAd
BgNVHQ4EFgQU7jJnFLKEjR0tEO7JhJBXu+H8/sUwCgYIKoZIzj0EAwIDRwAwRAIg
cBoTC0PyziXexa3qsMlMdxj1o/r8282YlTeWItWabKYCIB3LddBIOXiozq9VUIdA
aKo9M/rCjj5MSy4eQH+24S1+
-----END CERTIFICATE-----
`

func TestResolve_WarnsOfStaticPodsWithoutANodeNetwork(t *testing.T) {
	t.Parallel()
	told := func(cidr string) infrastructure.Facts {
		return infrastructure.Read("AWSCluster", "one", map[string]any{"spec": map[string]any{"network": map[string]any{"vpc": map[string]any{"cidrBlock": cidr}}}})
	}
	for name, test := range map[string]struct {
		facts   infrastructure.Facts
		data    map[string]string
		targets []contract.Target
		omit    []noproxy.Group
		warns   bool
	}{
		"no network":                       {infrastructure.Facts{}, nil, contract.AllTargets(), nil, true},
		"not asked for":                    {infrastructure.Facts{}, nil, contract.Targets(), nil, false},
		"told by the infrastructure":       {told("10.0.0.0/16"), nil, contract.AllTargets(), nil, false},
		"told and left out":                {told("10.0.0.0/16"), nil, contract.AllTargets(), []noproxy.Group{noproxy.GroupInfrastructure}, true},
		"told and unusable":                {told("0.0.0.0/0"), nil, contract.AllTargets(), nil, true},
		"written by the user":              {infrastructure.Facts{}, map[string]string{"noProxy": "a.example,10.0.0.0/16"}, contract.AllTargets(), nil, false},
		"a name is no network":             {infrastructure.Facts{}, map[string]string{"noProxy": "a.example"}, contract.AllTargets(), nil, true},
		"a star":                           {infrastructure.Facts{}, map[string]string{"noProxy": "*"}, contract.AllTargets(), nil, false},
		"credentials, which are taken out": {infrastructure.Facts{}, map[string]string{"username": "u"}, contract.AllTargets(), nil, false},
	} {
		data := map[string]string{"httpProxy": "http://p:1"}
		maps.Copy(data, test.data)
		reader := &secrets{data: map[string]map[string]string{"team/http-proxy": data}}
		cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp", PodCIDRs: []string{"10.244.0.0/16"}, Facts: test.facts}
		got, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), cluster, settings.Options{Targets: test.targets, OmitGroups: test.omit}, "")
		if err != nil {
			t.Fatal(err)
		}
		if warns := strings.Contains(settings.WarningCodes(got.Warnings), string(noproxy.CodeNoNodeNetwork)); warns != test.warns {
			t.Errorf("%s: warns %t (%s), want %t", name, warns, settings.WarningCodes(got.Warnings), test.warns)
		}
		for _, w := range got.Warnings {
			for _, port := range []string{"10250", "2379"} {
				if w.Code == noproxy.CodeNoNodeNetwork && !strings.Contains(w.Message, port) {
					t.Errorf("%s: the warning does not name port %s: %s", name, port, w.Message)
				}
			}
		}
	}
}

// TestResolve_SaysOfEachUnlabelledSecretThatItsChangesTakeTime has the note beside every other finding: a user who mends
// a key would otherwise wait without a word.
func TestResolve_SaysOfEachUnlabelledSecretThatItsChangesTakeTime(t *testing.T) {
	t.Parallel()
	const note = "unlabelled-secret: Secret %s: it has no label capi-proxy-patcher.io/proxy, so changes take up to " +
		"10 minutes (--sync-period) to take effect; label it: kubectl label secret %s capi-proxy-patcher.io/proxy= -n %s"
	cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp.example.com"}
	own, system := "team/http-proxy", "system/default"
	trust := map[string]string{"trustedCA": strings.Repeat("x", 10)}
	for name, test := range map[string]struct {
		own, system map[string]string
		unlabelled  string
		reason      string
		want        []string
	}{
		"both are labelled":        {own: proxy("own"), system: proxy("system")},
		"usable":                   {own: proxy("own"), system: proxy("system"), unlabelled: own, want: []string{own}},
		"the installation-wide":    {own: proxy("own"), system: proxy("system"), unlabelled: system, want: []string{system}},
		"both":                     {own: proxy("own"), system: proxy("system"), unlabelled: own + system, want: []string{own, system}},
		"the same twice":           {system: proxy("system"), unlabelled: system, want: []string{system}},
		"a bad key":                {own: map[string]string{"htpProxy": "x"}, system: proxy("system"), unlabelled: own, reason: "InvalidSettings", want: []string{own}},
		"bad certificates":         {own: trust, system: proxy("system"), unlabelled: own, reason: "InvalidSettings", want: []string{own}},
		"a bad entry of the other": {own: proxy("own"), system: map[string]string{"noProxy": "a:x"}, unlabelled: system, reason: "InvalidSettings", want: []string{system}},
		"a bad key of the system's": {
			system: map[string]string{"httpProxy": "://"}, unlabelled: system, reason: "InvalidSettings", want: []string{system},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := &secrets{data: map[string]map[string]string{}, unlabelled: test.unlabelled}
			for at, data := range map[string]map[string]string{own: test.own, system: test.system} {
				if data != nil {
					reader.data[at] = data
				}
			}
			resolution, err := settings.Resolver{
				Secrets: reader, Default: installation(true), WarnUnlabelled: true,
			}.Resolve(t.Context(), cluster, settings.Options{}, "")
			found := append(finding.Of(err), resolution.Warnings...)
			if (err != nil) != (test.reason != "") || err != nil && found[0].Reason != test.reason {
				t.Fatalf("%v, want reason %q", err, test.reason)
			}
			var got, want []string
			for _, f := range found {
				if f.Code == settings.CodeUnlabelledSecret {
					got = append(got, f.String())
				}
			}
			for _, secret := range test.want {
				want = append(want, fmt.Sprintf(note, secret, path.Base(secret), path.Dir(secret)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// facts are those of the infrastructure of any Cluster.
type facts infrastructure.Facts

func (f facts) Facts(context.Context, settings.Cluster) (infrastructure.Memory, error) {
	return infrastructure.Memory{Facts: infrastructure.Facts(f)}, nil
}

func TestResolve_HasTheEndpointOfTheInfrastructureIfTheClusterHasNone(t *testing.T) {
	t.Parallel()
	resolver := settings.Resolver{
		Secrets:        &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}},
		Infrastructure: facts{EndpointHost: "told.example.com"},
	}
	for own, want := range map[string]string{"": "told.example.com", "own.example.com": "own.example.com"} {
		got, err := resolver.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one", EndpointHost: own},
			settings.Options{}, "")
		if err != nil || !got.Complete || !strings.HasSuffix(got.NoProxy.Value, ","+want+",169.254.169.254,169.254.0.0/16") {
			t.Errorf("%q: complete %t, NO_PROXY %q, error %v", own, got.Complete, got.NoProxy.Value, err)
		}
	}
}

func TestIsProxied_DependsOnSchemeAndList(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key, address string
		want         bool
	}{
		"HTTPS through its proxy":  {"httpsProxy", "https://a.example.com/x", true},
		"HTTP through its proxy":   {"httpProxy", "http://a.example.com/x", true},
		"HTTP without a proxy":     {"httpsProxy", "http://a.example.com/x", false},
		"HTTPS, in NO_PROXY":       {"httpsProxy", "https://in.example.com/x", false},
		"what cannot be requested": {"httpsProxy", "https://a b/", false},
	} {
		reader := &secrets{data: map[string]map[string]string{"team/http-proxy": {test.key: "http://p.example.com:1", "noProxy": "in.example.com"}}}
		resolution, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(),
			settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp.example.com"}, settings.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if host, proxied := resolution.IsProxied(test.address); proxied != test.want || proxied && host != "a.example.com" {
			t.Errorf("%s: %q, %t", name, host, proxied)
		}
	}
}
