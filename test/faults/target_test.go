//go:build linux

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// answerTime is how long Cluster API waits for an answer.
const answerTime = 10 * time.Second

// target is a process that serves strangers, with the memory limit of its manifest.
type target struct {
	*process
	address string
	client  *tls.Config
	// limit is the memory limit of the manifest in bytes.
	limit int64
}

// newTarget starts a command of the program with the environment and the limit of its Deployment. prefix begins the flags of
// its server.
func newTarget(t *testing.T, deployment, prefix string, args ...string) *target {
	t.Helper()
	deployments := vocabulary.OfKind[appsv1.Deployment](t, vocabulary.Kustomize(t, "../../config/clusterclass"), "Deployment")
	i := slices.IndexFunc(deployments, func(d appsv1.Deployment) bool { return d.Name == deployment })
	container := deployments[i].Spec.Template.Spec.Containers[0]
	folder := t.TempDir()
	p := &target{
		address: vocabulary.FreeAddress(t),
		client:  &tls.Config{RootCAs: pki.Serve(t, folder).Pool(), MinVersion: tls.VersionTLS12},
		limit:   container.Resources.Limits.Memory().Value(),
	}
	host, port, _ := net.SplitHostPort(p.address)
	environment := []string{"GOGC=100"} // what a container without the variable has
	for _, variable := range container.Env {
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	p.process = run(t, environment, append(args, "--"+prefix+"bind-address", host, "--"+prefix+"port", port,
		"--"+prefix+"cert-dir", folder)...)
	// It counts what may be written to, in memory or not, so this is beyond the limit. The peak is compared with that.
	data := &unix.Rlimit{Cur: uint64(2 * p.limit), Max: uint64(2 * p.limit)} //nolint:gosec // not negative
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_DATA, data, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// answer waits until a request is answered, and returns the answer.
func (p *target) answer(path string, body []byte) (answer []byte) {
	p.t.Helper()
	wait.Rule{Still: time.Minute, Poll: 20 * time.Millisecond}.Until(p.t, "an answer", func() string {
		p.alive()
		var err error
		if answer, err = p.post(p.t.Context(), path, body); err != nil || len(answer) == 0 {
			return fmt.Sprintf("%d bytes, %v", len(answer), err)
		}
		return ""
	})
	return answer
}

// alive fails if the process has ended.
func (p *target) alive() {
	p.t.Helper()
	if p.hasExited() {
		text := p.log.String()
		p.t.Fatalf("the process has ended: %s\n%s", p.cmd.ProcessState, text[:min(len(text), 2000)])
	}
}

// peak returns the most memory that the process has had, in bytes.
func (p *target) peak() int64 {
	p.t.Helper()
	p.alive()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kibibytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kibibytes << 10
}

// post sends one request over a connection of its own.
func (p *target) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: p.client, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return text, err
}

// survives carries out attacks, one after the other, and sends an honest request after each of them, whose answer must
// be as it was before.
func (p *target) survives(path string, honest []byte, attacks []attack) {
	p.t.Helper()
	want := p.answer(path, honest)
	for _, a := range attacks {
		began := time.Now() //nolint:forbidigo // for the log
		a.do()
		p.alive()
		// A busy machine may be too slow for the time that a connection has. An honest client asks again.
		if got := p.answer(path, honest); !bytes.Equal(got, want) {
			p.t.Errorf("after %s an honest request gets %d bytes, want %d", a.name, len(got), len(want))
		}
		p.t.Logf("%s: %s, peak %d MiB", a.name, time.Since(began).Round(time.Millisecond), p.peak()>>20)
	}
	if peak := p.peak(); peak > p.limit {
		p.t.Errorf("it had %d MiB of memory, and the manifest allows %d MiB", peak>>20, p.limit>>20)
	}
}

// attack is something that should not matter to others.
type attack struct {
	name string
	do   func()
}
