package check

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

var sample = Report{Status: Failed, Groups: []Group{
	{"One", []Result{{Check: "lease", Status: OK, Message: "fine"}}},
	{"Two", []Result{
		{Check: "guard", Status: Failed, Message: strings.Repeat("word ", 12) + "end", Do: "mend it", Link: "https://example.com/" + strings.Repeat("x", 60)},
		{Check: "hooks", Status: Warning, Message: "old", Do: "kubectl " + strings.Repeat("word ", 12)},
	}},
}}

// TestPrinter_WrapsAndColoursOnATerminal looks at each line: none is wider than a terminal, but for a word that is.
func TestPrinter_WrapsAndColoursOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &printer{out: &out, terminal: &out, width: 80}
	for _, group := range sample.Groups {
		p.group(group)
	}
	if err := p.end(sample); err != nil {
		t.Fatal(err)
	}
	indent := strings.Repeat(" ", 32)
	want := "One\n  \x1b[32mok      \x1b[0m lease                fine\n\n" +
		"Two\n  \x1b[31mfailed  \x1b[0m guard                word word word word word word word word word\n" + indent + "word word word end\n" +
		indent + "mend it\n" + indent + sample.Groups[1].Checks[0].Link + "\n" +
		"  \x1b[33mwarning \x1b[0m hooks                old\n" + indent + sample.Groups[1].Checks[1].Do + "\n\n1 failed (guard), 1 warning, 1 ok\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestPrinter_HasALineForEachProblem is the output for scripts and chats.
func TestPrinter_HasALineForEachProblem(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPrinter(kit.Streams{Out: &out}.ForPeople(), true)
	for _, group := range sample.Groups {
		p.group(group)
	}
	_ = p.end(sample)
	want := "failed   Two: guard: " + sample.Groups[1].Checks[0].Message + "\nwarning  Two: hooks: old\n1 failed (guard), 1 warning, 1 ok\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestPrinter_AsksWhetherItIsATerminal has a file, and a device that counts as one.
func TestPrinter_AsksWhetherItIsATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for path, want := range map[string]bool{t.TempDir() + "/report": false, os.DevNull: true} {
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, without := range []string{"", "1"} {
			t.Setenv("NO_COLOR", without)
			p := newPrinter(kit.Streams{Out: file}.ForPeople(), false)
			if (p.terminal != nil) != (want && without == "") || (p.width == 80) != want {
				t.Errorf("%s, NO_COLOR=%q: %+v", path, without, p)
			}
		}
		_ = file.Close()
		p := newPrinter(kit.Streams{Out: file}.ForPeople(), false)
		p.group(sample.Groups[0])
		if err := p.end(sample); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: error %v", path, err)
		}
	}
}

// TestFromNodes_SaysWhyTheWorkloadClusterIsOutOfReach has no kubeconfig, and other checks are made all the same.
func TestFromNodes_SaysWhyTheWorkloadClusterIsOutOfReach(t *testing.T) {
	t.Parallel()
	o := options()
	o.cluster = "other"
	_, err := o.workload(t.Context(), managementCluster(t, ""))
	c := newChecker(Options{Client: managementCluster(t, ""), FromNodes: &FromNodes{Err: err}})
	c.Cluster.Namespace, c.Cluster.Name = o.namespace, o.cluster
	got := c.fromNodes(t.Context())[0].Checks[0]
	if got.Status != Failed || !strings.Contains(got.Message, `"other-kubeconfig" not found`) || !strings.Contains(got.Do, "Secret team/other-kubeconfig") ||
		!strings.HasSuffix(got.Link, "#node-pod") {
		t.Errorf("%+v", got)
	}
}

// TestFromNodes_IsUnknownWithoutAnAnswerOfTheManagementCluster has what the user has asked for not made, and nothing to
// mend in the Secret.
func TestFromNodes_IsUnknownWithoutAnAnswerOfTheManagementCluster(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, test := range map[string]struct {
		err      error
		want, do string
	}{
		"no right":  {apierrors.NewForbidden(secrets, "x", errors.New(`cannot get resource "secrets"`)), "missing right: get secrets", "--from-nodes needs this right"},
		"an error":  {apierrors.NewInternalError(errors.New("etcd")), "etcd", "look at"},
		"a timeout": {context.DeadlineExceeded, "deadline", "look at"},
	} {
		api := interceptor.NewClient(managementCluster(t, ""), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return test.err
			},
		})
		_, err := options().workload(t.Context(), api)
		got := newChecker(Options{Client: api, FromNodes: &FromNodes{Err: err}}).fromNodes(t.Context())[0].Checks[0]
		if got.Status != Unknown || !strings.Contains(got.Message, test.want) || !strings.HasPrefix(got.Do, test.do) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestRunCheck_HasSeenNothing is interrupted in the first round of --wait.
func TestRunCheck_HasSeenNothing(t *testing.T) {
	t.Parallel()
	kubeconfig := t.TempDir() + "/kubeconfig"
	if err := os.WriteFile(kubeconfig, []byte(kubeconfigOf("http://127.0.0.1:1", "", "token: x")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, problems bytes.Buffer
	err := runCheck(ctx, checkOptions{kubeconfig: kubeconfig, output: "text", wait: time.Hour}, kit.Streams{Out: &out, Err: &problems})
	status, _ := errors.AsType[kit.StatusError](err)
	if status.Status != exitUnchecked || out.Len() > 0 || !strings.Contains(problems.String(), "nothing was seen yet") {
		t.Errorf("%v: %s%s", err, out.String(), problems.String())
	}
}

// TestAdvice_IsThereForEachCheck has what to do for each check, but for those whose message says it.
func TestAdvice_IsThereForEachCheck(t *testing.T) {
	t.Parallel()
	for _, check := range (&checker{}).clusterAPI() {
		if advice(check.code, Failed) == "" || advice(check.code, Unknown) == "" {
			t.Errorf("%s has no advice", check.code)
		}
	}
	for _, check := range append((&checker{}).installation(), (&checker{}).clusters()...) {
		if advice(check.code, Failed) == "" || advice(check.code, Unknown) == "" {
			t.Errorf("%s has no advice", check.code)
		}
	}
}
