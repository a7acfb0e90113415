package finding_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func note(message string) finding.Finding { return finding.Finding{Message: message} }

func of(reason, message string) finding.Finding {
	return finding.Finding{Reason: reason, Message: message}
}

func many(reason string, n int) []finding.Finding {
	found := make([]finding.Finding, n)
	for i := range found {
		found[i] = of(reason, fmt.Sprintf("key %q", fmt.Sprintf("k%03d", i)))
	}
	return found
}

func TestCondition_SummarizesFindings(t *testing.T) {
	t.Parallel()
	rude := "a \"%s\" ' \\ $ ` {{ x }}\n[::1] bücher.example"
	rudeLine := "a \"%s\" ' \\ $ ` {{ x }} [::1] bücher.example"
	long := strings.Repeat("ü", 50_000)
	// room is how long a note may be behind three of the longest, with "And 1 more finding" in its place.
	room := 4096 - 3*(len("* 1…\n")+1020) - len("* ") - len("\nAnd 1 more finding") - 1
	var eight []string
	for i := range 8 {
		eight = append(eight, fmt.Sprintf(`* key "k%03d"`, i))
	}
	for name, test := range map[string]struct {
		found          []finding.Finding
		summary        string
		status, reason string
		message        string
	}{
		"nothing":                {nil, "", "True", "Configured", ""},
		"a summary":              {nil, "2 use a/b", "True", "Configured", "2 use a/b"},
		"notes come behind it":   {[]finding.Finding{note("n1"), note("n2")}, "s", "True", "Configured", "s\n* n1\n* n2"},
		"a finding hides it":     {[]finding.Finding{of("InvalidSettings", "bad")}, "s", "False", "InvalidSettings", "bad"},
		"the severe come first":  {[]finding.Finding{note("n"), of("Paused", "p"), of("SettingsNotFound", "s1"), of("Paused", "p2")}, "", "False", "SettingsNotFound", "* s1\n* p\n* p2\n* n"},
		"the severe of two":      {[]finding.Finding{of("Paused", "p"), of("SettingsNotFound", "s1")}, "", "False", "SettingsNotFound", "* s1\n* p"},
		"a wait is Unknown":      {[]finding.Finding{of("WaitingForObjects", "w")}, "", "Unknown", "WaitingForObjects", "w"},
		"each is told once":      {[]finding.Finding{of("Paused", "p"), note("p"), of("Paused", "p"), note("p")}, "", "Unknown", "Paused", "* p\n* p"},
		"text is text":           {[]finding.Finding{note(rude)}, "", "True", "Configured", rudeLine},
		"a finding is one line":  {[]finding.Finding{of("Paused", "p\n* forged\r\n\u2028- x"), of("Paused", "p2")}, "", "Unknown", "Paused", "* p * forged - x\n* p2"},
		"a summary is one line":  {[]finding.Finding{note("n\n")}, "s\n* forged", "True", "Configured", "s * forged\n* n"},
		"notes alone are a list": {[]finding.Finding{note("n1"), note("n2")}, "", "True", "Configured", "* n1\n* n2"},
		"300 keys":               {many("InvalidSettings", 300), "", "False", "InvalidSettings", strings.Join(eight, "\n") + "\nAnd 292 more findings"},
		"nine are one more":      {many("Paused", 9), "", "Unknown", "Paused", strings.Join(eight, "\n") + "\nAnd 1 more finding"},
		"eight need no counting": {many("Paused", 8), "", "Unknown", "Paused", strings.Join(eight, "\n")},
		"100 kB":                 {[]finding.Finding{of("Paused", long), of("Paused", "p")}, "", "Unknown", "Paused", "* " + strings.Repeat("ü", 510) + "…\n* p"},
		"a summary of 100 kB":    {[]finding.Finding{note("n")}, long, "True", "Configured", strings.Repeat("ü", 510) + "…\n* n"},
		"all of it is limited": {
			[]finding.Finding{note("1" + long), note("2" + long), note("3" + long), note("4" + long), note("5" + long)},
			"", "True", "Configured",
			"* 1" + strings.Repeat("ü", 510) + "…\n* 2" + strings.Repeat("ü", 510) + "…\n* 3" + strings.Repeat("ü", 510) +
				"…\nAnd 2 more findings",
		},
		"exactly what has room": {
			[]finding.Finding{note("1" + long), note("2" + long), note("3" + long), note(strings.Repeat("x", room))},
			"", "True", "Configured",
			"* 1" + strings.Repeat("ü", 510) + "…\n* 2" + strings.Repeat("ü", 510) + "…\n* 3" + strings.Repeat("ü", 510) +
				"…\n* " + strings.Repeat("x", room),
		},
		"a byte more": {
			[]finding.Finding{note("1" + long), note("2" + long), note("3" + long), note(strings.Repeat("x", room+1))},
			"", "True", "Configured",
			"* 1" + strings.Repeat("ü", 510) + "…\n* 2" + strings.Repeat("ü", 510) + "…\n* 3" + strings.Repeat("ü", 510) +
				"…\nAnd 1 more finding",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := finding.ConditionOf(test.found, test.summary)
			want := finding.Condition{Status: test.status, Reason: test.reason, Message: test.message}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(got.Message) > 4096 || !utf8.ValidString(got.Message) {
				t.Errorf("%d bytes, valid %t", len(got.Message), utf8.ValidString(got.Message))
			}
		})
	}
}

func TestLine_IsOneLineThatPrints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		"  a\n\tb\r\u2028c \x00 d  ":           "a b c d",
		"\x1b[31mred\u200b\u202e\xff\ufffd %s": "[31mred %s",
		strings.Repeat("é", 20):                strings.Repeat("é", 8) + "…",
	} {
		if got := finding.Line(text, 20); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestFew_CountsTheOthers has lists around the bound.
func TestFew_CountsTheOthers(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"": nil, "a, b, c": {"a", "b", "c"}, "a, b, c and 2 more": {"a", "b", "c", "d", "e"},
	} {
		if got := finding.Few(names); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}

func TestCut_NeverCutsACharacter(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "a", strings.Repeat("a", 1024), strings.Repeat("a", 1025), strings.Repeat("€", 600),
		strings.Repeat("a🙂", 700),
	} {
		for limit := 3; limit < 1100; limit++ {
			got := finding.Cut(text, limit)
			if len(got) > limit || !utf8.ValidString(got) || len(text) <= limit && got != text {
				t.Fatalf("%d bytes cut to %d: %q", len(text), limit, got)
			}
			if kept, cut := strings.CutSuffix(got, "…"); got != text &&
				(!cut || !strings.HasPrefix(text, kept) || len(got) < limit-3) {
				t.Fatalf("%d bytes cut to %d: %q", len(text), limit, got)
			}
		}
	}
}

func TestEventOf_WarnsOfWhatTheUserMustActOn(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]finding.Event{
		contract.ReasonConfigured:         {"Normal", "ProxyConfigured", "%s {{"},
		contract.ReasonInvalidSettings:    {"Warning", "InvalidProxySettings", "%s {{"},
		contract.ReasonSettingsNotFound:   {"Warning", "InvalidProxySettings", "%s {{"},
		contract.ReasonConflictingFile:    {"Warning", "ProxyNotConfigured", "ConflictingFile: %s {{"},
		contract.ReasonNameTaken:          {"Warning", "ProxyNotConfigured", "NameTaken: %s {{"},
		contract.ReasonInternalError:      {"Warning", "ProxyNotConfigured", "InternalError: %s {{"},
		contract.ReasonWaitingForObjects:  {"Normal", "ProxyNotConfigured", "WaitingForObjects: %s {{"},
		contract.ReasonWaitingForRollout:  {"Normal", "ProxyNotConfigured", "WaitingForRollout: %s {{"},
		contract.ReasonRemovalWaiting:     {"Normal", "ProxyNotConfigured", "RemovalWaitingForRollout: %s {{"},
		contract.ReasonWaitingForEndpoint: {"Normal", "ProxyNotConfigured", "WaitingForControlPlaneEndpoint: %s {{"},
	} {
		found := []finding.Finding{of(reason, "%s {{")}
		if reason == contract.ReasonConfigured {
			found[0].Reason = ""
		}
		if diff := cmp.Diff(want, finding.EventOf(finding.ConditionOf(found, ""))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	list := finding.EventOf(finding.ConditionOf(append(many(contract.ReasonPaused, 9), note("n")), ""))
	if want := `Paused: key "k000"; key "k001"; key "k002"; key "k003"; key "k004"; key "k005"; key "k006"; key "k007"; ` +
		"And 2 more findings"; list.Note != want {
		t.Errorf("a list is %q", list.Note)
	}
	with := finding.EventOf(finding.ConditionOf([]finding.Finding{note("n1"), note("n2")}, "summary"))
	if with.Note != "summary; n1; n2" {
		t.Errorf("a summary with notes is %q", with.Note)
	}
	long := finding.EventOf(finding.ConditionOf([]finding.Finding{
		note(strings.Repeat("🙂", 300)),
		note("a" + strings.Repeat("🙂", 300)),
	}, ""))
	if len(long.Note) > 1024 || len(long.Note) < 1020 || !utf8.ValidString(long.Note) {
		t.Errorf("a note of %d bytes", len(long.Note))
	}
}

func TestDigest_ChangesWithWhatIsNewsOnly(t *testing.T) {
	t.Parallel()
	before := many(contract.ReasonPaused, 20)
	progress := func(message string) finding.Finding { return finding.Finding{Message: message, Progress: true} }
	for name, test := range map[string]struct {
		a, b []finding.Finding
		same bool
	}{
		"the same":                      {before, many(contract.ReasonPaused, 20), true},
		"one told twice":                {before, append(many(contract.ReasonPaused, 20), before[3]), true},
		"progress":                      {append(many("", 1), progress("3 Machines")), append(many("", 1), progress("2 Machines")), true},
		"the end of progress":           {append(many("", 1), progress("3 Machines")), many("", 1), true},
		"another note":                  {[]finding.Finding{note("a")}, []finding.Finding{note("b")}, false},
		"a note becomes a reason":       {[]finding.Finding{note("a")}, []finding.Finding{of("Paused", "a")}, false},
		"another reason":                {[]finding.Finding{of("Contested", "a")}, []finding.Finding{of("Paused", "a")}, false},
		"what the message does not say": {before, many(contract.ReasonPaused, 21), false},
		"another less severe finding": {
			[]finding.Finding{of("InvalidSettings", "a"), of("WaitingForObjects", "b")},
			[]finding.Finding{of("InvalidSettings", "a"), of("Paused", "c")},
			true,
		},
		"another note beside a reason": {[]finding.Finding{of("Paused", "a"), note("b")}, []finding.Finding{of("Paused", "a"), note("c")}, false},
		"behind the cut":               {[]finding.Finding{note(strings.Repeat("a", 2000) + "b")}, []finding.Finding{note(strings.Repeat("a", 2000) + "c")}, false},
		"a line end is no separator":   {[]finding.Finding{note("a"), note("b")}, []finding.Finding{note("a\"\n\"\" \"b")}, false},
		"nothing":                      {nil, []finding.Finding{note("")}, false},
	} {
		if same := finding.Digest(test.a) == finding.Digest(test.b); same != test.same {
			t.Errorf("%s: the same %t, want %t", name, same, test.same)
		}
	}
}

func TestUnconfigured_FindsObjectsWithoutTheProxy(t *testing.T) {
	t.Parallel()
	carries := finding.Object{Name: "KubeadmControlPlane a/one", Secret: "a/p", Carries: true}
	none := finding.Object{Name: "KubeadmConfigTemplate a/md"}
	lacks := finding.Object{Name: "KubeadmConfigTemplate a/other", Secret: "a/p"}
	kept := finding.Object{Name: "KubeadmConfigTemplate a/kept", Carries: true}
	const nothing = "no bootstrap object of Cluster a/one carries the proxy"
	for name, test := range map[string]struct {
		objects     []finding.Object
		unsupported bool
		want        []finding.Finding
	}{
		"one carries it":                {[]finding.Object{carries}, false, nil},
		"one has none":                  {[]finding.Object{carries, none}, false, nil},
		"one was left alone":            {[]finding.Object{carries, none}, true, nil},
		"one was left alone with it":    {[]finding.Object{kept}, true, nil},
		"no object":                     {nil, false, []finding.Finding{of(contract.ReasonWaitingForObjects, "Cluster a/one has neither a control plane nor a pool with a bootstrap object yet")}},
		"nothing that can be patched":   {nil, true, []finding.Finding{of(contract.ReasonTemplateNotSupported, nothing)}},
		"every pool does without":       {[]finding.Object{none}, false, []finding.Finding{of(contract.ReasonTemplateNotSupported, nothing)}},
		"one should and does not":       {[]finding.Object{carries, lacks}, false, []finding.Finding{of(contract.ReasonWaitingForObjects, "KubeadmConfigTemplate a/other does not carry the proxy yet")}},
		"the only one should and lacks": {[]finding.Object{lacks}, true, []finding.Finding{of(contract.ReasonWaitingForObjects, "KubeadmConfigTemplate a/other does not carry the proxy yet")}},
	} {
		if diff := cmp.Diff(test.want, finding.Unconfigured("a/one", test.objects, test.unsupported)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSummary_CountsByProxySecret(t *testing.T) {
	t.Parallel()
	with := func(secrets ...string) []finding.Object {
		objects := make([]finding.Object, len(secrets))
		for i, secret := range secrets {
			objects[i] = finding.Object{Secret: secret, Carries: secret != ""}
		}
		return objects
	}
	var crowd []string
	for i := range 12 {
		crowd = append(crowd, fmt.Sprintf("a/s%02d", i))
	}
	for name, test := range map[string]struct {
		objects []finding.Object
		want    string
	}{
		"nothing":                 {nil, ""},
		"one":                     {with("a/http-proxy"), "1 of 1 pools and control planes has the proxy (Secret a/http-proxy)"},
		"by Secret":               {with("a/edge", "a/http-proxy", "", "a/http-proxy"), "3 of 4 pools and control planes have the proxy (2 Secret a/http-proxy, 1 Secret a/edge)"},
		"equal numbers":           {with("a/z", "a/b", "", ""), "2 of 4 pools and control planes have the proxy (1 Secret a/b, 1 Secret a/z)"},
		"one that is not ready":   {[]finding.Object{{Secret: "a/p"}}, "0 of 1 pools and control planes have the proxy"},
		"one that was left with":  {[]finding.Object{{Carries: true}}, "1 of 1 pools and control planes has the proxy"},
		"a template of two pools": {[]finding.Object{{Secret: "a/p", Carries: true, Pools: 2}, {}}, "2 of 3 pools and control planes have the proxy (Secret a/p)"},
		"a crowd":                 {with(crowd...), "12 of 12 pools and control planes have the proxy (1 Secret a/s00, 1 Secret a/s01, 1 Secret a/s02, 1 Secret a/s03, 1 Secret a/s04, 1 Secret a/s05, 1 Secret a/s06, 1 Secret a/s07, 4 more Secrets)"},
	} {
		if got := finding.Summary(test.objects); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestNotes_HaveTheFirstOfEachCodeAndCountTheRest(t *testing.T) {
	t.Parallel()
	warning := func(code finding.Code, field string) finding.Finding {
		return finding.Finding{Code: code, Place: finding.Field(field), Message: "%s {{", Advice: "write\nit"}
	}
	got := finding.Notes([]finding.Finding{
		warning("port", "a"), warning("size", "a"), warning("port", "b"), warning("port", "a"), warning("port", "c"),
		warning("size", "a"),
	})
	want := []finding.Finding{note("port: a: %s {{; write\nit (and 2 more like it)"), warning("size", "a")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := finding.Notes(nil); got != nil {
		t.Errorf("nothing gives %v", got)
	}
}
