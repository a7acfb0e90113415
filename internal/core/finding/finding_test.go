package finding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func TestPlace_SaysWhere(t *testing.T) {
	t.Parallel()
	rude := "%s \"'\\$`{{\n"
	field := finding.Field("spec", "clusterNetwork", "pods", "cidrBlocks")
	variable := finding.Option("spec", "topology", "workers",
		"machineDeployments").Item("md-0").Child("variables", "overrides")
	for want, place := range map[string]finding.Place{
		"":                                       {},
		"Secret a/p":                             finding.Place{}.Of("Secret a/p"),
		"key noProxy":                            finding.Key("noProxy"),
		"key noProxy entry 3":                    finding.Key("noProxy").At(3),
		"Secret a/p, key noProxy entry 4000":     finding.Key("noProxy").At(4000).Of("Secret a/p"),
		"key trustedCA certificate 2":            finding.Key("trustedCA").At(2),
		"Secret a/p, data.noProxy":               finding.Key("data", "noProxy").Of("Secret a/p"),
		"keys":                                   finding.Keys(),
		"Secret a/p, keys httpProxy and noProxy": finding.Keys("httpProxy", "noProxy").Of("Secret a/p"),
		"spec.clusterNetwork.pods.cidrBlocks[0]": field.Index(0),
		"spec.clusterNetwork.pods.cidrBlocks of Cluster a/one":                             field.Of("Cluster a/one"),
		"annotation example.com/a of MachineDeployment md":                                 finding.Annotation("example.com/a").Of("MachineDeployment md"),
		"label example.com/a":                                                              finding.Label("example.com/a"),
		"spec.topology.workers.machineDeployments[md-0].variables.overrides[x].noProxy[1]": variable.Item("x").Child("noProxy").Index(1),
		"DevCluster one, spec.hosts[2]":                                                    (finding.Place{Object: "DevCluster one", Kind: finding.InObject}).Child("spec", "hosts").Index(2),
		fmt.Sprintf("key %q", rude):                                                        finding.Key(rude),
	} {
		if got := place.String(); got != want || (want == "") != place.IsZero() {
			t.Errorf("got %q, zero %t, want %q", got, place.IsZero(), want)
		}
	}
}

func TestPlace_DoesNotModifyItsParent(t *testing.T) {
	t.Parallel()
	list := finding.Field("a", "b", "c")
	first, second, named := list.Index(0), list.Index(1), list.Child("d")
	if got := fmt.Sprint(list, first, second, named, first.At(2),
		first.Of("o")); got != "a.b.c a.b.c[0] a.b.c[1] a.b.c.d a.b.c[0] entry 2 a.b.c[0] of o" {
		t.Errorf("got %s", got)
	}
	if !first.Equal(list.Index(0)) || first.Equal(second) || first.Equal(first.At(1)) ||
		list.Index(0).Equal(list.Child("0")) {
		t.Error("places are compared by something else than what they are")
	}
}

func TestFinding_IsOneLine(t *testing.T) {
	t.Parallel()
	place := finding.Key("noProxy").At(2).Of("Secret a/p")
	for name, test := range map[string]struct {
		finding finding.Finding
		want    string
	}{
		"a rejection":         {finding.Rejection("bad", place, "it is %s", "write {{"), "Secret a/p, key noProxy entry 2: it is %s (bad); write {{"},
		"without advice":      {finding.Rejection("bad", place, "it is", ""), "Secret a/p, key noProxy entry 2: it is (bad)"},
		"of an option":        {finding.Rejection("bad", finding.Label("l"), "it is", "do"), "label l: it is; do"},
		"without a place":     {finding.Rejection("bad", finding.Place{}, "Secret a/p is bad", "do"), "Secret a/p is bad; do"},
		"a warning":           {finding.Finding{Code: "odd", Place: place, Message: "it is", Advice: "do"}, "odd: Secret a/p, key noProxy entry 2: it is; do"},
		"about an option":     {finding.Finding{Code: "odd", Place: finding.Label("l"), Message: "it is"}, "odd: label l: it is"},
		"a sentence":          {finding.Finding{Reason: contract.ReasonPaused, Message: "Cluster a/p is paused"}, "Cluster a/p is paused"},
		"one for people only": {finding.Finding{Reason: contract.ReasonPaused, Place: finding.Field("spec", "paused"), Message: "is true"}, "spec.paused: is true"},
	} {
		if got := test.finding.String(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestErrors_AreFoundInEveryTree(t *testing.T) {
	t.Parallel()
	one, two := finding.Rejection("one", finding.Place{}, "1", ""), finding.Rejection("two", finding.Place{}, "2", "do")
	var none finding.Errors
	if none.Err() != nil || finding.Of(nil) != nil || finding.Of(errors.New("x")) != nil {
		t.Error("nothing is an error")
	}
	err := errors.Join(fmt.Errorf("reading: %w", finding.Errors{one}.Err()), errors.New("x"),
		fmt.Errorf("more: %w", errors.Join(finding.Errors{two, one})))
	got := finding.Of(err)
	if diff := cmp.Diff(finding.Errors{one, two, one}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := got.Err().Error(); text != "1; 2; do; 1" {
		t.Errorf("got %q", text)
	}
	if diff := cmp.Diff(two, finding.Errors{two}.One()); diff != "" {
		t.Errorf("one finding is another one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(finding.Finding{Reason: one.Reason, Message: "1; 2; do"}, finding.Errors{one, two}.One()); diff != "" {
		t.Errorf("two findings as one (-want +got):\n%s", diff)
	}
	if !got.Has(contract.ReasonInvalidSettings) || got.Has(contract.ReasonPaused) {
		t.Error("Has finds something else")
	}
}

func TestFinding_HasTheFieldsOfExplainInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal([]finding.Finding{
		{Code: "odd", Place: finding.Key("noProxy").At(2), Message: "it is", Advice: "do"}, {Code: "odd", Reason: "r", Progress: true},
	})
	const want = `[{"code":"odd","where":"key noProxy entry 2","message":"it is","fix":"do"},{"code":"odd","where":"","message":""}]`
	if err != nil || string(text) != want {
		t.Errorf("got %s, error %v", text, err)
	}
}
