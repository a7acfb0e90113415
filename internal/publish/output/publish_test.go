package output

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// everything asks for every output.
const everything = "env,values=a.b,values=c,annotations,giantswarm,trust=cert-manager,pods,kapp-controller"

func asks(t *testing.T, list string) Request {
	t.Helper()
	all, err := ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func input(t *testing.T, data map[string]string) Input {
	t.Helper()
	return sample(t, data, "localhost,.svc,10.0.0.0/8")
}

func of(t *testing.T, list string, in Input) Result {
	t.Helper()
	result, err := Of(asks(t, list), in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// contents are the values of all Secrets, by Secret and key.
func contents(r Result) map[string]string {
	all := map[string]string{}
	for _, secret := range r.Secrets {
		for key, value := range secret.Data {
			all[secret.Name+"/"+key] = string(value)
		}
	}
	return all
}

func reasons(r Result) []string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Reason)
	}
	return all
}

// TestOf_MakesOutputsBesideEachOther has all outputs at once, each as it is alone: golden files have that.
func TestOf_MakesOutputsBesideEachOther(t *testing.T) {
	t.Parallel()
	in := input(t, map[string]string{"httpProxy": "http://p:3128", "httpsProxy": "http://s:3129"})
	got, want := of(t, everything, in), map[string]string{}
	for _, alone := range []string{"env", "values=a.b,values=c", "annotations", "giantswarm", "trust=cert-manager", "pods", "kapp-controller"} {
		result := of(t, alone, in)
		maps.Copy(want, contents(result))
		if diff := cmp.Diff(got.Annotations, result.Annotations); diff != "" && alone == "annotations" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(want, contents(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	names := map[string]int{}
	for _, secret := range got.Secrets {
		names[secret.Name] = len(secret.Data)
		if clusters := ClustersOf(secret.Name); secret.Delivered == nil && !slices.Equal(clusters, []string{"prod"}) {
			t.Errorf("%s is of %s", secret.Name, clusters)
		}
	}
	if diff := cmp.Diff(map[string]int{
		"prod-proxy-outputs": 7, "prod-cluster-values": 1, "prod-systemd-proxy": 1, "prod-proxy-trust": 1, "prod-proxy-pods": 1,
		"prod-proxy-kapp-controller": 1,
	}, names); diff != "" {
		t.Errorf("Secrets and their keys (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{""}, reasons(got)); diff != "" { // of trust without certificates
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestOutputs_GoWhereTheirHeaderSays(t *testing.T) {
	t.Parallel()
	workload := []Name{"istio", "kapp-controller", "pods", "trust"}
	for _, name := range []Name{
		"annotations", "env", "env-file", "giantswarm", "istio", "kapp-controller", "nodes", "pods", "tkg", "trust", "values", "unknown",
	} {
		if got := (Output{Name: name}).IsForWorkload(); got != slices.Contains(workload, name) {
			t.Errorf("%s is for the workload cluster: %v", name, got)
		}
	}
	want := []string{AnnotationHTTPProxy, AnnotationHTTPSProxy, AnnotationNoProxy}
	if got := AnnotationKeys(); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("outputs write the annotations %q", got)
	}
}

// showsNeedle reports whether a text has the word needle, as it is or somewhere in what is encoded as base64.
func showsNeedle(text string) bool {
	for _, encoded := range []string{"needle", "bmVlZGxl", "5lZWRsZ", "uZWVkbG"} { // it begins at any of three bytes
		if strings.Contains(text, encoded) {
			return true
		}
	}
	return false
}

// TestOf_HoldsNoCredentialWithoutTheAnnotation looks for the password, encoded in any way, in all that leaves the
// management cluster and in everything that people read.
func TestOf_HoldsNoCredentialWithoutTheAnnotation(t *testing.T) {
	t.Parallel()
	for _, outputs := range []string{everything, strings.Replace(everything, ",pods,", ",pods=kyverno,", 1)} {
		t.Run(outputs, func(t *testing.T) {
			t.Parallel()
			in := input(t, map[string]string{"httpProxy": "http://p:3128", "username": "needle-user", "password": "needle+pass"})
			result := of(t, outputs, in)
			if diff := cmp.Diff([]string{"", ReasonCredentialsWithheld, ReasonCredentialsWithheld, ""}, reasons(result)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			texts := []string{fmt.Sprint(result.Annotations), fmt.Sprint(result.Findings)}
			beside := 0
			for _, secret := range result.Secrets {
				if all := fmt.Sprintf("%s", secret.Data); secret.Delivered != nil {
					texts = append(texts, all)
				} else if showsNeedle(all) {
					beside++
				}
			}
			for _, text := range texts {
				if showsNeedle(text) {
					t.Errorf("a credential is in %s", text)
				}
			}
			if beside != 3 { // they have what the generated Secret has
				t.Errorf("%d Secrets in the management cluster have the credentials", beside)
			}
			list := asks(t, outputs)
			list.Credentials = true
			with, err := Of(list, in)
			if err != nil || !slices.Equal(reasons(with), []string{"", ""}) {
				t.Errorf("with the annotation: %v, %v", with.Findings, err)
			}
			leaves := 0
			for _, secret := range with.Secrets {
				if secret.Delivered != nil && showsNeedle(fmt.Sprintf("%s", secret.Data)) {
					leaves++
				}
			}
			if leaves != 2 { // else the search is blind
				t.Errorf("with the annotation %d delivered Secrets have the credentials", leaves)
			}
		})
	}
}

func TestOf_RefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	in := input(t, map[string]string{"httpProxy": "http://p:3128"})
	var many strings.Builder
	for i := range 9 {
		fmt.Fprintf(&many, ",values=path.p%d", i)
	}
	for length, want := range map[int][]string{
		8 << 10:    {""},
		8<<10 + 1:  {contract.ReasonTooLarge, ""},
		16<<10 + 1: {contract.ReasonTooLarge, contract.ReasonTooLarge, ""},
		120 << 10:  {contract.ReasonTooLarge, contract.ReasonTooLarge, contract.ReasonTooLarge, ""},
	} {
		in.NoProxy = strings.Repeat("a", length)
		result := of(t, everything+many.String(), in)
		if diff := cmp.Diff(want, reasons(result)); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s%v", length, diff, result.Findings)
		}
		for _, secret := range result.Secrets {
			if secret.Kept != (len(secret.Data) == 0) {
				t.Errorf("%d bytes: Secret %s", length, secret.Name)
			}
		}
		if result.AnnotationsKept != (length > 16<<10) || result.AnnotationsKept == (len(result.Annotations) > 0) {
			t.Errorf("%d bytes: annotations kept %t", length, result.AnnotationsKept)
		}
	}
}

func TestOf_GivesPodsOnlyWhereItWorks(t *testing.T) {
	t.Parallel()
	in := input(t, map[string]string{"httpProxy": "http://p:3128"})
	for _, test := range []struct{ list, version, want string }{
		{"pods", "v1.36.0", "[] kept false"},
		{"pods", "v1.37.0-alpha.1+x", "[] kept false"},
		{"pods", "v1.36.0-rc.1", "[] kept false"},
		{"pods", "v1.35.9", "[KubernetesTooOld] kept true"},
		{"pods", "", "[KubernetesTooOld] kept true"},
		{"pods", "%s\n{{", "[KubernetesTooOld] kept true"},
		{"pods=kyverno", "v1.33.1", "[] kept false"},
		{"pods=kyverno", "", "[] kept false"},
	} {
		in.Version = test.version
		result := of(t, test.list, in)
		if got := fmt.Sprintf("%s kept %t", reasons(result), result.Secrets[0].Kept); got != test.want {
			t.Errorf("%s on %q: %s, want %s", test.list, test.version, got, test.want)
		}
	}
	in.Version, in.HasNodeNetwork = "v1.36.0", false
	if notes := of(t, "pods", in).Findings; len(notes) != 1 || notes[0].Reason != "" ||
		!strings.Contains(notes[0].Message, "no network of the nodes") {
		t.Errorf("without a network of nodes: %v", notes)
	}
	in = input(t, map[string]string{"trustedCA": pki.Text(t)})
	in.NoProxy, in.HasNodeNetwork = "", false
	if result := of(t, everything, in); len(result.Findings) > 0 || len(result.Annotations) > 0 {
		t.Errorf("with certificates alone: %v, %v", result.Findings, result.Annotations)
	}
}

func TestKept_NamesTheSameSecrets(t *testing.T) {
	t.Parallel()
	in := input(t, map[string]string{"httpProxy": "http://p:3128"})
	for _, list := range []string{"", "env", "values=a", "annotations", "giantswarm", "trust", "pods=kyverno", "kapp-controller", everything} {
		want, kept := of(t, list, in), Kept(asks(t, list), "prod")
		describe := func(r Result) (names []string) {
			for _, secret := range r.Secrets {
				names = append(names, fmt.Sprint(secret.Name, " ", secret.Output, " ", secret.Delivered))
			}
			slices.Sort(names)
			return names
		}
		if diff := cmp.Diff(describe(want), describe(kept)); diff != "" || kept.AnnotationsKept != (want.Annotations != nil) {
			t.Errorf("%s (-want +got):\n%s", list, diff)
		}
		if len(contents(kept)) > 0 {
			t.Errorf("%s: kept Secrets have content", list)
		}
	}
}

func TestOf_PrintsEachProxyForAMeshOnce(t *testing.T) {
	t.Parallel()
	const named = `"hosts":["proxy.example.com"],"location":"MESH_EXTERNAL","ports":[{"name":"tcp","number":`
	for name, tc := range map[string]struct {
		http, https string
		want        []string
	}{
		"one proxy for both": {http: "http://proxy.example.com:3128", want: []string{named + "3128,"}},
		"the same host at two ports": {
			http: "http://proxy.example.com:3128", https: "http://proxy.example.com:3129",
			want: []string{named + "3128,", named + "3129,"},
		},
		"no ports":      {http: "http://proxy.example.com", https: "https://proxy.example.com", want: []string{named + "80,", named + "443,"}},
		"https only":    {https: "http://proxy.example.com:3128", want: []string{named + "3128,"}},
		"an IPv4 proxy": {http: "http://192.0.2.1:1", want: []string{`"addresses":["192.0.2.1/32"],"hosts":["192-0-2-1.http-proxy.`}},
		"an IPv6 proxy": {http: "http://[2001:db8::1]:1", want: []string{
			`"addresses":["2001:db8::1/128"],"hosts":["2001-0db8-0000-0000-0000-0000-0000-0001.http-proxy.`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := map[string]string{"httpProxy": tc.http, "httpsProxy": tc.https, "username": "needle", "password": "needle"}
			request, err := ReadForRender(map[string]string{AnnotationPublish: "istio"})
			if err != nil {
				t.Fatal(err)
			}
			result, err := Of(request, input(t, data))
			if err != nil || len(result.Printed) != 1 || len(result.Printed[0].Objects) != len(tc.want) {
				t.Fatalf("got %v, %v", result, err)
			}
			for i, entry := range result.Printed[0].Objects {
				text, err := json.Marshal(entry)
				if err != nil {
					t.Fatal(err)
				}
				resolved := strings.Contains(string(text), `"resolution":"DNS"`)
				if !strings.Contains(string(text), tc.want[i]) || resolved == strings.Contains(string(text), "addresses") ||
					strings.Contains(string(text), "needle") {
					t.Errorf("got %s, want %s", text, tc.want[i])
				}
			}
		})
	}
}

func TestMain(m *testing.M) {
	contract.Add(Names())
	m.Run()
}
