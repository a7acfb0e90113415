//go:build linux

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/servingcert"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// patience is how long Cluster API waits for an answer.
const patience = 10 * time.Second

// process is a serving process, with the memory limit of its manifest.
type process struct {
	t       *testing.T
	address string
	client  *tls.Config
	command *exec.Cmd
	log     *logbuffer.Buffer
	exited  chan struct{}
	// limit is the memory limit of the manifest in bytes.
	limit int64
}

// start builds the program and starts it with the limits of a Deployment of config/default with a component. args
// returns its arguments for a port and a folder with a certificate.
func start(t *testing.T, name, component string, args func(port, folder string) []string) *process {
	t.Helper()
	deployments := built[appsv1.Deployment](t, everything(t, component), "Deployment")
	i := slices.IndexFunc(deployments, func(d appsv1.Deployment) bool { return d.Name == name })
	container := deployments[i].Spec.Template.Spec.Containers[0]
	folder := t.TempDir()
	program, err := mgmt.Build(t.Context(), "../..", folder)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, address: vocabulary.FreeAddress(t), client: &tls.Config{
			RootCAs:    servingcert.Pool(servingcert.Write(t, folder)),
			MinVersion: tls.VersionTLS12,
		},
		log: &logbuffer.Buffer{}, exited: make(chan struct{}), limit: container.Resources.Limits.Memory().Value(),
	}
	_, port, _ := net.SplitHostPort(p.address)
	p.command = exec.CommandContext(t.Context(), program, args(port, folder)...)
	p.command.Env = append(os.Environ(), "GOGC=100") // what a container without the variable has
	for _, variable := range container.Env {
		p.command.Env = append(p.command.Env, variable.Name+"="+variable.Value)
	}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.command.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() { <-p.exited }) // the end of the test's context has killed it
	// It counts what may be written to, in memory or not, so this is beyond the limit. The peak is compared with that.
	data := &unix.Rlimit{Cur: uint64(2 * p.limit), Max: uint64(2 * p.limit)} //nolint:gosec // not negative
	if err := unix.Prlimit(p.command.Process.Pid, unix.RLIMIT_DATA, data, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// ready waits until a request is answered, and returns the answer.
func (p *process) ready(path string, body []byte) (answer []byte) {
	p.t.Helper()
	wait.Rule{Still: time.Minute, Poll: 20 * time.Millisecond}.Until(p.t, "an answer", func() string {
		p.alive()
		var err error
		if answer, err = p.post(p.t.Context(), path, body); err != nil || len(answer) == 0 {
			return fmt.Sprintf("%d bytes, %v\n%s", len(answer), err, p.log)
		}
		return ""
	})
	return answer
}

// alive fails if the process has ended.
func (p *process) alive() {
	p.t.Helper()
	select {
	case <-p.exited:
		text := p.log.String()
		p.t.Fatalf("the process has ended: %s\n%s", p.command.ProcessState, text[:min(len(text), 2000)])
	default:
	}
}

// peak returns the most memory that the process has had, in bytes.
func (p *process) peak() int64 {
	p.t.Helper()
	p.alive()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
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

// ask sends one request over a connection of its own and returns why there was no answer of status 200.
func (p *process) ask(path string, body []byte) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	_, err := p.post(ctx, path, body)
	return err
}

func (p *process) post(ctx context.Context, path string, body []byte) ([]byte, error) {
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

// dial opens a connection.
func (p *process) dial(ctx context.Context) (net.Conn, error) {
	return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: p.client}).DialContext(ctx, "tcp", p.address)
}

// survives carries out attacks, one after the other, and sends an honest request after each of them, whose answer must
// be as it was before.
func (p *process) survives(path string, honest []byte, attacks []attack) {
	p.t.Helper()
	want := p.ready(path, honest)
	for _, a := range attacks {
		began := time.Now() //nolint:forbidigo // for the log
		a.do()
		p.alive()
		// A busy machine may be too slow for the time that a connection has. An honest client asks again.
		if got := p.ready(path, honest); !bytes.Equal(got, want) {
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
