package output_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

func TestParseList_CompletesArguments(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"": "[]", " \t": "[]", "env": "[env]", " env , annotations,giantswarm": "[env annotations giantswarm]",
		"trust": "[trust=kube-system]", "trust = cert-manager": "[trust=cert-manager]", "pods": "[pods]",
		"pods=kyverno": "[pods=kyverno]", "kapp-controller": "[kapp-controller=kapp-controller]",
		"kapp-controller=tkg-system":             "[kapp-controller=tkg-system]",
		"values=a,values=b.c-d_E.9,values=b.c-d": "[values=a values=b.c-d_E.9 values=b.c-d]",
	} {
		request, err := output.ParseList(list)
		if got := fmt.Sprint(request.Outputs); err != nil || got != want {
			t.Errorf("%q: got %s, error %v, want %s", list, got, err, want)
		}
	}
}

func TestRead_FindsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	const outputs = "the outputs are annotations, …, values" // adding one changes no test
	rude := "a \"%s\" ' \\ $ ` {{ x }}\n[::1] bücher.example"
	for list, want := range map[string][]string{
		"enf":                {`entry 1: "enf" is not an output; did you mean env?`},
		"env,,":              {"entry 2: an empty entry; remove one of the commas", "entry 3: an empty entry; remove one of the commas"},
		"isto":               {`entry 1: "isto" is not an output; the controller does not write it; print it with render --publish=istio`},
		"tgk":                {`entry 1: "tgk" is not an output; the controller does not write it; print it with render --publish=tkg`},
		"Env":                {`entry 1: "Env" is not an output; did you mean env?`},
		"nodes=a":            {`entry 1: "nodes" is not an output; did you mean pods?`},
		rude:                 {fmt.Sprintf("entry 1: %q is not an output; %s", rude, outputs)},
		"istio,env=x,pods=y": {`entry 1: "istio" is not an output; the controller does not write it; print it with render --publish=istio`, "entry 2: output env has no argument; remove the equals sign and what follows it", `entry 3: output pods has no argument "y"; write pods or pods=kyverno`},
		"env,pods,env,pods=kyverno,annotations=": {
			"entry 3: output env is asked for twice; remove one of them", "entry 4: output pods is asked for twice; remove one of them",
			"entry 5: output annotations has no argument; remove the equals sign and what follows it",
		},
		"values": {`entry 1: "" is not a path in values; write values=PATH, keys of letters, digits, _ and - joined by dots, for example values=defaults.env`},
		"values=a.,values=a b": {
			`entry 1: "a." is not a path in values; write values=PATH, keys of letters, digits, _ and - joined by dots, for example values=defaults.env`,
			`entry 2: "a b" is not a path in values; write values=PATH, keys of letters, digits, _ and - joined by dots, for example values=defaults.env`,
		},
		"values=a.b,values=a":               {"entry 2: path a.b and path a are one inside the other; remove one of them"},
		"values=a,values=a":                 {"entry 2: path a and path a are one inside the other; remove one of them"},
		"values=a,values=ab,values=a.b":     {"entry 3: path a and path a.b are one inside the other; remove one of them"},
		"trust=Bad_Name,kapp-controller=":   {`entry 1: "Bad_Name" cannot be the name of a namespace; write trust=NAMESPACE`, `entry 2: "" cannot be the name of a namespace; write kapp-controller=NAMESPACE`},
		strings.Repeat("env,", 4000) + "en": append(repeated(2, 32, "output env is asked for twice; remove one of them"), "entry 33: too many outputs; ask for at most 32"),
	} {
		_, err := output.Read(map[string]string{output.AnnotationPublish: list})
		var got []string
		for _, f := range finding.Of(err) {
			text, ours := strings.CutPrefix(f.String(), "annotation capi-proxy-patcher.io/publish ")
			if !ours || f.Reason != output.ReasonInvalidOutput || f.Code != "bad-annotation" {
				t.Errorf("%q: %+v", list, f)
			}
			got = append(got, between.ReplaceAllString(text, "${1}…$2"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", list, diff)
		}
	}
}

// between are the outputs between the first and the last one.
var between = regexp.MustCompile(`(the outputs are annotations, ).*(, values)$`)

func repeated(from, to int, text string) []string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("entry %d: %s", i, text))
	}
	return all
}

func TestRead_ReadsWhetherCredentialsMayLeave(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "false": false} {
		request, err := output.Read(map[string]string{output.AnnotationPublish: "env", output.AnnotationPublishCredentials: value})
		if err != nil || request.Credentials != want || len(request.Outputs) != 1 {
			t.Errorf("%s: %+v, %v", value, request, err)
		}
	}
	_, err := output.Read(map[string]string{output.AnnotationPublish: "x,env", output.AnnotationPublishCredentials: "True"})
	if found := finding.Of(err); len(found) != 2 ||
		found[1].String() != `annotation capi-proxy-patcher.io/publish-credentials: unknown value "True"; use true or false` {
		t.Errorf("got %v", err)
	}
	if request, err := output.Read(map[string]string{output.AnnotationPublishCredentials: ""}); err == nil {
		t.Errorf("got %+v", request)
	}
}
