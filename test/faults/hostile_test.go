//go:build linux

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// Paths of the hooks.
const (
	root      = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/"
	discovery = root + "discovery"
	generate  = root + "generatepatches/generate-patches"
	validate  = root + "validatetopology/validate-topology"
	variables = root + "discovervariables/discover-variables"
)

const megabyte = 1 << 20

// labelled is the beginning of a request for a Cluster with the label, up to the first item.
const labelled = `{"variables":[{"name":"builtin","value":{"cluster":{"name":"c","namespace":"n","metadata":{"labels":{"capi-proxy-patcher.io/enabled":"true"}}}}}],"items":[`

// filled returns a body of at most so many bytes: a beginning, and an item as often as it fits, or count times.
func filled(size, count int, item func(i int) string) []byte {
	var b bytes.Buffer
	b.WriteString(labelled)
	for i := range count {
		text := item(i)
		if b.Len()+len(text)+3 > size {
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// pool is a bootstrap template of pool i, machines the machine template of it, which asks for Windows.
func pool(i int) string {
	return fmt.Sprintf(
		`{"uid":"%d","holderReference":{"kind":"MachineDeployment","name":"p%d","fieldPath":"spec.template.spec.bootstrap.configRef"},`+
			`"object":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate"},`+
			`"variables":[{"name":"builtin","value":{"machineDeployment":{"topologyName":"p%d"}}}]}`, i, i, i)
}

func machines(i int) string {
	return fmt.Sprintf(
		`{"holderReference":{"kind":"MachineDeployment","name":"p%d","fieldPath":"spec.template.spec.infrastructureRef"},"object":{"spec":{"os":"windows"}}}`, i)
}

// withSecret is pool i with a proxy Secret of its own.
func withSecret(i int) string {
	return strings.Replace(pool(i), `"variables":[`,
		fmt.Sprintf(`"variables":[{"name":"capiProxyPatcher","value":{"secretName":"s%d"}},`, i), 1)
}

// floodTime is how long a flood lasts if the server does not take all its connections: five times as long as a client may
// keep one of the few places. A server without a bound takes them all in that time.
const floodTime = 15 * time.Second

// flood opens connections, several at a time, lets each of them do something, and keeps them open.
func (p *target) flood(count int, do func(c net.Conn)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), floodTime)
	p.t.Cleanup(cancel)
	var wait sync.WaitGroup
	turn := make(chan struct{}, 32)
	for range count {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: answerTime}, Config: p.client}
			c, err := dialer.DialContext(ctx, "tcp", p.address)
			if err != nil {
				return // refused, which is allowed
			}
			p.t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(answerTime)) //nolint:forbidigo // a test waits in real time
			do(c)
		})
	}
	wait.Wait()
}

func post(c net.Conn, path string, length int, body []byte) {
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, length)
	_, _ = c.Write(body)
}

// send sends bodies at once and does not care what becomes of them.
func (p *target) send(path string, bodies ...[]byte) {
	ctx, cancel := context.WithTimeout(p.t.Context(), answerTime)
	defer cancel()
	var wait sync.WaitGroup
	for _, body := range bodies {
		wait.Go(func() { _, _ = p.post(ctx, path, body) })
	}
	wait.Wait()
}

// times returns a body n times.
func times(n int, body []byte) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = body
	}
	return all
}

func TestHooks_SurviveHostileRequests(t *testing.T) {
	namespace(t)
	t.Parallel()
	p := newTarget(t, "capi-proxy-patcher-hooks", "", "hooks", "--kubeconfig", shared.Kubeconfig)
	p.survives(generate, honest(t), p.onHooks())
}

// honest is a request for a Cluster with 100 pools.
func honest(t *testing.T) []byte {
	t.Helper()
	q, err := hookrequests.Generate(hookrequests.Options{Pools: 100, Distinct: true})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// onHooks are the attacks on the port of hooks.
func (p *target) onHooks() []attack {
	const many = 98_000
	empty := filled(20*megabyte, 20*megabyte, func(int) string { return `{}` })
	return []attack{
		{"2,000 connections with one byte of 20 MB", func() {
			p.flood(2000, func(c net.Conn) { post(c, generate, 20*megabyte, []byte("{")) })
		}},
		{"connections that say nothing", func() { p.flood(500, func(net.Conn) {}) }},
		{"connections that stay open after an answer", func() { p.flood(500, func(c net.Conn) { post(c, discovery, 2, []byte("{}")) }) }},
		{"bodies that stop before their end", func() {
			p.flood(40, func(c net.Conn) { post(c, validate, 20*megabyte, bytes.Repeat([]byte(" "), 19*megabyte)) })
		}},
		{"answers that nobody reads", func() {
			body := filled(megabyte, 300, pool)
			p.flood(60, func(c net.Conn) { post(c, generate, len(body), body) })
		}},
		{"20 MB of items", func() { p.send(generate, filled(20*megabyte, many, pool)) }},
		{"the same, several times at once", func() { p.send(generate, times(6, filled(20*megabyte, many, pool))...) }},
		{"millions of empty items", func() { p.send(generate, empty); p.send(validate, empty); p.send(variables, empty) }},
		{"labels and annotations without end", func() {
			own := strings.TrimSuffix(strings.Repeat(`"capi-proxy-patcher.io/%d":"",`, 600_000), ",")
			numbers := make([]any, 600_000)
			for i := range numbers {
				numbers[i] = i
			}
			own = fmt.Sprintf(own, numbers...)
			p.send(generate, []byte(strings.Replace(labelled, `"labels":{`, `"annotations":{`+own+`},"labels":{`, 1)+`]}`))
		}},
		{"more templates than are taken", func() {
			p.send(generate, filled(20*megabyte, 120_000, func(i int) string {
				if i < 60_000 {
					return machines(i)
				}
				return pool(i - 60_000)
			}))
		}},
		{"as many Windows templates as are taken", func() {
			p.send(generate, filled(20*megabyte, 19_000, func(i int) string {
				if i%2 == 0 {
					return machines(i / 2)
				}
				return pool(i / 2)
			}))
		}},
		{"as many Secrets of pools as are taken", func() {
			body := filled(20*megabyte, 19_000, withSecret)
			p.send(generate, body)
			p.send(validate, body)
		}},
		{"as many entries of pools as are taken", func() {
			entries := `{"noProxy":["` + strings.Repeat(`a","`, 999) + `a"]}`
			body := filled(20*megabyte-len(entries)-100, 19_000, func(i int) string {
				return strings.Replace(pool(i), `"variables":[`, `"variables":[{"name":"capiProxyPatcher","value":`+entries+`},`, 1)
			})
			p.send(validate,
				bytes.Replace(body, []byte(`"variables":[`),
					[]byte(`"variables":[{"name":"capiProxyPatcher","value":`+entries+`},`), 1))
		}},
		{"a variable with millions of fields", func() {
			fields := strings.TrimSuffix(strings.Repeat(`"":0,`, 4_000_000), ",")
			p.send(validate,
				[]byte(strings.Replace(labelled, `[{`, `[{"name":"capiProxyPatcher","value":{`+fields+`}},{`, 1)+`]}`))
		}},
	}
}

const template = "/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfigtemplate"

// review is an AdmissionReview of a new KubeadmConfigTemplate of a namespace with a spec.
func review(ns, spec string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","namespace":%q,"name":"x",`+
			`"object":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","metadata":{"namespace":%q,"name":"x"},"spec":%s}}}`, ns, ns, spec)
}

func TestManager_SurvivesHostileRequests(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := newTarget(t, "capi-proxy-patcher-controller-manager", "webhook-", "manager", "--kubeconfig", shared.Kubeconfig, "--namespace", ns)
	honest := review(ns, `{"template":{"spec":{"files":[{"path":"/x","content":"y"}]}}}`)
	const most = 4 * megabyte
	full := func(item string) []byte {
		list := strings.Repeat(item+",", (most-2000)/(len(item)+1))
		return review(ns, `{"template":{"spec":{"files":[`+strings.TrimSuffix(list, ",")+`]}}}`)
	}
	p.survives(template, honest, []attack{
		{"2,000 connections with one byte of 4 MB", func() {
			p.flood(2000, func(c net.Conn) { post(c, template, most, []byte("{")) })
		}},
		{"bodies that stop before their end", func() {
			p.flood(60, func(c net.Conn) { post(c, template, most, bytes.Repeat([]byte(" "), most-1)) })
		}},
		{"millions of empty objects", func() { p.send(template, times(8, full(`{}`))...) }},
		{"millions of empty lists", func() { p.send(template, times(8, full(`[]`))...) }},
		{"files without end", func() { p.send(template, times(8, full(`{"path":"/a"}`))...) }},
		{"many small reviews", func() { p.send(template, times(100, honest)...) }},
	})
}
