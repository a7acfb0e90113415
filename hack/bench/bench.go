package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/hack/measure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

const hooks = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/"

// clusters is how many different Clusters are used in turn.
const clusters = 16

// bench is two running servers.
type bench struct {
	folder         string
	client         *http.Client
	null, product  *exec.Cmd
	nullURL, ouURL string
	// started is how long the product took until it answered, nullStarted how long the other did.
	started, nullStarted time.Duration
}

func newBench(program string) (*bench, error) {
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	b := &bench{folder: folder}
	pool, err := measure.Certificate(folder)
	if err != nil {
		return nil, err
	}
	b.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:    pool,
		MinVersion: tls.VersionTLS12,
	}, ForceAttemptHTTP2: true}}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	free := [2]string{}
	for i := range free {
		port, err := ports.Free(context.Background())
		if err != nil {
			return nil, err
		}
		free[i] = strconv.Itoa(port)
	}
	b.nullURL, b.ouURL = "https://127.0.0.1:"+free[0]+hooks, "https://127.0.0.1:"+free[1]+hooks
	if b.null, b.nullStarted, err = b.start(b.nullURL, self, "-null", "-port", free[0], "-cert-dir", folder); err != nil {
		return nil, err
	}
	b.product, b.started, err = b.start(b.ouURL, program, "hooks", "--port", free[1], "--bind-address", "127.0.0.1",
		"--cert-dir", folder, "--health-addr", "0", "--diagnostics-address", "0")
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// start starts a server on one core and returns how long it took until it answered.
func (b *bench) start(url, program string, args ...string) (*exec.Cmd, time.Duration, error) {
	command := exec.CommandContext(context.Background(), program, args...) //nolint:gosec // the developer names the program
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	begin := time.Now()
	if err := command.Start(); err != nil {
		return nil, 0, fmt.Errorf("starting %s: %w; build it with make build", program, err)
	}
	for time.Since(begin) < 20*time.Second {
		if _, err := b.post(url+"discovery", []byte(`{}`)); err == nil {
			return command, time.Since(begin), nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	stop(command)
	return nil, 0, fmt.Errorf("starting %s: no answer", program)
}

func stop(command *exec.Cmd) {
	if command != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

func (b *bench) close() {
	stop(b.null)
	stop(b.product)
	_ = os.RemoveAll(b.folder)
}

func (b *bench) post(url string, body []byte) ([]byte, error) {
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := b.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return text, err
}

// figures are medians per request.
type figures struct {
	in, out           int
	null, ours, ratio float64 // CPU milliseconds
}

// compare measures one kind of request.
func (b *bench) compare(pools int, kind string, count, rounds int) (figures, error) {
	var bodies [][]byte
	hook := "generatepatches/generate-patches"
	f := figures{}
	for i := range clusters {
		o := hookrequests.Options{Cluster: i, Pools: pools, Distinct: kind == "distinct"}
		if kind == "overrides" {
			o.EverySecond = `{"secretName":"other"}`
		}
		q, err := hookrequests.Generate(o)
		if err != nil {
			return f, err
		}
		var body any = q
		switch kind {
		case "validate":
			hook = "validatetopology/validate-topology"
			body = hookrequests.Validate(q)
		default:
			text, err := b.ask(hook, q)
			if err != nil {
				return f, err
			}
			if err := applyAll(q, text, pools+1); err != nil {
				return f, err
			}
			if f.out = len(text); kind != "patched" {
				break
			}
			if text, err = b.ask(hook, q); err != nil {
				return f, err
			}
			if f.out = len(text); bytes.Contains(text, []byte("items")) {
				return f, errors.New("a patched request is patched again")
			}
		}
		if kind != "patched" && kind != "validate" {
			if q, err = hookrequests.Generate(o); err != nil {
				return f, err
			}
			body = q
		}
		text, err := json.Marshal(body)
		if err != nil {
			return f, err
		}
		bodies = append(bodies, text)
	}
	f.in = len(bodies[0])
	var null, ours, ratio []float64
	for range rounds {
		n, err := b.measure(b.null, b.nullURL+hook, bodies, count)
		if err != nil {
			return f, err
		}
		o, err := b.measure(b.product, b.ouURL+hook, bodies, count)
		if err != nil {
			return f, err
		}
		null, ours, ratio = append(null, n), append(ours, o), append(ratio, o/n)
	}
	f.null, f.ours, f.ratio = median(null), median(ours), median(ratio)
	return f, nil
}

func (b *bench) ask(hook string, q any) ([]byte, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return b.post(b.ouURL+hook, body)
}

// applyAll carries out an answer in its request, as Cluster API does, and checks that it patches as many templates.
func applyAll(q *runtimehooksv1.GeneratePatchesRequest, text []byte, want int) error {
	var response runtimehooksv1.GeneratePatchesResponse
	if err := json.Unmarshal(text, &response); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if response.Status != runtimehooksv1.ResponseStatusSuccess || len(response.Items) != want {
		return fmt.Errorf("%d patches, want %d: %s", len(response.Items), want, response.Message)
	}
	for _, it := range response.Items {
		for i := range q.Items {
			if q.Items[i].UID != it.UID {
				continue
			}
			decoded, err := jsonpatch.DecodePatch(it.Patch)
			if err != nil {
				return fmt.Errorf("reading a patch: %w", err)
			}
			if q.Items[i].Object.Raw, err = decoded.Apply(q.Items[i].Object.Raw); err != nil {
				return fmt.Errorf("applying a patch: %w", err)
			}
		}
	}
	return nil
}

// measure returns the CPU milliseconds that a server uses for one request.
func (b *bench) measure(server *exec.Cmd, url string, bodies [][]byte, count int) (float64, error) {
	for i := range clusters { // its heap grows, and what is lazy is done
		if _, err := b.post(url, bodies[i]); err != nil {
			return 0, err
		}
	}
	before, err := measure.CPUMilliseconds(server.Process.Pid)
	if err != nil {
		return 0, err
	}
	for i := range count {
		if _, err := b.post(url, bodies[i%clusters]); err != nil {
			return 0, err
		}
	}
	after, err := measure.CPUMilliseconds(server.Process.Pid)
	return (after - before) / float64(count), err
}
