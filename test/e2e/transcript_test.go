//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	transcriptFile = root + "/docs/start.md"
	// transcriptTitle is above the transcript, which is the last section of the page.
	transcriptTitle = "\n## A session\n\n"
	// writeTranscript is the environment variable that has the test write the section instead of comparing it.
	writeTranscript = "WRITE_TRANSCRIPT"
)

// transcript records what a user types and sees.
type transcript struct {
	r    *repository
	dir  string
	env  []string
	text strings.Builder
}

// newTranscript makes a folder to work in, with the programs in $PATH.
func newTranscript(t *testing.T, r *repository, version string) *transcript {
	t.Helper()
	s := &transcript{r: r, dir: t.TempDir()}
	bin, home := filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "config")
	for _, dir := range []string{bin, filepath.Join(home, "cluster-api")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		filepath.Join(bin, "kubectl"): management.Program("kubectl"), filepath.Join(bin, "clusterctl"): management.Program("clusterctl"),
		filepath.Join(bin, "capi-proxy-patcher"):              filepath.Join(r.madeRelease(version), releasedProgram),
		filepath.Join(home, "cluster-api", "clusterctl.yaml"): r.config,
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+r.world.cluster.Kubeconfig,
		"XDG_CONFIG_HOME="+home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	return s
}

// say adds a paragraph.
func (s *transcript) say(text string) { s.text.WriteString(text + "\n\n") }

// run runs a command line, and returns its output. The transcript does not record it: the page shows it above.
func (s *transcript) run(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Env, cmd.Dir = s.env, s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// do runs a command line, and adds it with what it prints.
func (s *transcript) do(t *testing.T, command string) {
	t.Helper()
	out := s.run(t, command)
	for i, line := range strings.Split(command, "\n") {
		prompt := "    $ "
		if i > 0 {
			prompt = "    > "
		}
		s.text.WriteString(prompt + line + "\n")
	}
	for line := range strings.SplitSeq(strings.TrimRight(s.steady(out), "\n"), "\n") {
		if line != "" {
			s.text.WriteString(strings.TrimRight("    "+line, " ") + "\n")
		}
	}
	s.text.WriteString("\n")
}

// steady replaces what is different each time, leaves out warnings of the API server about what clusterctl asks for, as
// their number depends on how long it waits, and aligns columns anew.
func (s *transcript) steady(text string) string {
	for _, volatile := range []struct{ pattern, with string }{
		{regexp.QuoteMeta(s.r.dir), "releases"},
		{`(prod-(control-plane|md-\d)-)[a-z0-9]{5}(-[a-z0-9]{5})?\b`, "${1}xxxxx"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "2026-01-01T12:00:00Z"},
		{`\b(\d+m(\d+s)?|\d+s)\b`, "1m"},
		{`(?m)^v1 Endpoints is deprecated.*\n`, ""},
		{` {3,}`, "\t"},
	} {
		text = regexp.MustCompile(volatile.pattern).ReplaceAllString(text, volatile.with)
	}
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	_, _ = table.Write([]byte(text))
	_ = table.Flush()
	return aligned.String()
}

// TestTranscript is a user who has a release folder and docs/install.md. What they type and see is the last section of
// docs/start.md.
func TestTranscript(t *testing.T) {
	t.Parallel()
	const first, second = "v0.1.0", "v0.1.1"
	other := start(t)
	takeTurn(t)
	w := newManagement(t, other)
	r := newRepository(t, w, t.TempDir())
	r.release(t, first)
	s := newTranscript(t, r, first)
	c := &cluster{world: w, namespace: namespaceOf(t), name: "prod"}
	c.kubectl(t, "", "create", "namespace", c.namespace)
	c.manifest = unlabelled(c.generate(t, c.name, options{controlPlanes: 1, workers: 1}))

	s.say("From installing to uninstalling, with what each command prints. `make test-e2e` runs it and compares it with this page;\n" +
		"random parts of names, times and addresses are replaced.")
	s.installs(t, first)
	c.apply(t)
	c.waitRunning(t, 3)
	s.labels(t, c)
	s.rotates(t, c)
	machines := c.waitRunning(t, 3)

	s.say("### Upgrade")
	r.release(t, second)
	s.run(t, "clusterctl upgrade plan")
	s.do(t, "clusterctl upgrade apply --runtime-extension capi-proxy-patcher:"+second+" --wait-providers")
	r.runs(t, second, mgmt.SystemNamespace)
	s.say("No Machine is replaced:")
	c.staysCalm(t, machines)
	s.status(t, "True    infrastructure-kind")

	s.say("### Uninstall")
	s.say("Remove the label first:")
	s.do(t, "kubectl --namespace transcript annotate cluster prod capi-proxy-patcher.io/rollout=Immediate --overwrite\n"+
		"kubectl --namespace transcript label cluster prod capi-proxy-patcher.io/enabled-")
	c.waitReplaced(t, machines, 3, anyMachine)
	eventually(t, func() error {
		if condition, err := c.condition(t); err != nil || condition.Reason != vocabulary.NoCondition {
			return fmt.Errorf("the condition is %+v, %w", condition, err)
		}
		return nil
	})
	s.run(t, "capi-proxy-patcher check --pre-delete")
	s.do(t, "clusterctl delete --runtime-extension capi-proxy-patcher --include-namespace")
	s.do(t, "kubectl delete clusterrole,clusterrolebinding -l cluster.x-k8s.io/provider="+management.ProviderLabel)
	r.waitLeft(t, nil)
	s.finish(t)
}

// status runs command status for the namespace of the transcript when a manager leads and the table shows a state. A
// manager that was upgraded may wait for the lease of the one before it, and Machines are recorded after the condition.
func (s *transcript) status(t *testing.T, state string) {
	t.Helper()
	const command = "capi-proxy-patcher status --namespace transcript"
	eventually(t, func() error {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Env, cmd.Dir = s.env, s.dir
		out, err := cmd.CombinedOutput()
		if err == nil && (!strings.HasPrefix(string(out), "A manager renews Lease ") || !strings.Contains(string(out), state)) {
			err = fmt.Errorf("no manager leads, or nothing is %q", state)
		}
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		return nil
	})
	s.do(t, command)
}

func (s *transcript) installs(t *testing.T, version string) {
	t.Helper()
	s.say("### Install")
	s.run(t, "capi-proxy-patcher check --pre")
	s.do(t, "clusterctl init --runtime-extension capi-proxy-patcher:"+version+" --wait-providers")
	s.r.runs(t, version, mgmt.SystemNamespace)
	s.run(t, "capi-proxy-patcher check --wait 5m")
}

func (s *transcript) labels(t *testing.T, c *cluster) {
	t.Helper()
	s.say("### Label a Cluster")
	s.say("Cluster `prod` runs, with one control-plane Machine and two workers:")
	s.do(t, "echo first | capi-proxy-patcher secret --namespace transcript --http-proxy http://proxy.corp.example:3128 "+
		"--username node --password-file - |\n  kubectl apply -f -")
	s.say("This is what the label would do:")
	s.do(t, "kubectl --namespace transcript label cluster prod capi-proxy-patcher.io/enabled=true --dry-run=client -o yaml |\n"+
		"  capi-proxy-patcher plan --namespace transcript --cluster prod -f -")
	s.do(t, "kubectl --namespace transcript label cluster prod capi-proxy-patcher.io/enabled=true")
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	s.status(t, "2 behind")
	s.say("New Machines have the proxy:")
	machines := c.waitRunning(t, 3)
	s.do(t, "clusterctl alpha rollout restart --namespace transcript kubeadmcontrolplane/prod-control-plane\n"+
		"clusterctl alpha rollout restart --namespace transcript machinedeployment/prod-md-0\n"+
		"clusterctl alpha rollout restart --namespace transcript machinedeployment/prod-md-1")
	c.waitReplaced(t, machines, 3, anyMachine)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.waitBehind(t, 0)
}

func (s *transcript) rotates(t *testing.T, c *cluster) {
	t.Helper()
	s.say("### Change the password")
	s.do(t, `kubectl --namespace transcript patch secret http-proxy -p '{"stringData":{"password":"second"}}'`)
	c.waitBehind(t, 3)
	s.say("No Machine is replaced. Those that have the old password:")
	s.do(t, "capi-proxy-patcher status --namespace transcript --cluster prod --machines")
	s.say("With annotation `rollout: Immediate` the controller replaces them:")
	machines := c.waitRunning(t, 3)
	s.do(t, "kubectl --namespace transcript annotate cluster prod capi-proxy-patcher.io/rollout=Immediate --overwrite")
	c.waitReplaced(t, machines, 3, anyMachine)
	c.waitBehind(t, 0)
	s.say("When no Machine is behind, withdraw the old password:")
	s.do(t, "capi-proxy-patcher status --namespace transcript --cluster prod --machines")
	s.do(t, "kubectl --namespace transcript annotate cluster prod capi-proxy-patcher.io/rollout-")
}

// finish compares the transcript with the page, or writes it.
func (s *transcript) finish(t *testing.T) {
	t.Helper()
	text := strings.TrimRight(s.text.String(), "\n") + "\n"
	page, err := os.ReadFile(transcriptFile)
	if err != nil {
		t.Fatal(err)
	}
	before, shown, _ := strings.Cut(string(page), transcriptTitle)
	if os.Getenv(writeTranscript) != "" {
		if err := os.WriteFile(transcriptFile, []byte(before+transcriptTitle+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(shown, text); diff != "" {
		t.Errorf("docs/start.md (-page +run); write it with %s=1:\n%s", writeTranscript, diff)
	}
}
