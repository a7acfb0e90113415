package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

const secret = `p%40s"$s` + "`"

// folders are a node and a mounted Secret.
type folders struct {
	t *testing.T
	agent.Options
}

// newFolders has a node with variables but no service that reads them, so that nothing is restarted, and the same mounted.
func newFolders(t *testing.T) folders {
	t.Helper()
	f := folders{t, agent.Options{Root: t.TempDir(), From: t.TempDir(), State: t.TempDir()}}
	must(t, os.Mkdir(f.path("/run"), 0o755)) //nolint:gosec // as on a node
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:old@proxy:3128"))
	f.mount(contract.KeyTrustedCABundle, systemd.EnvironmentFileHeader+"\n")
	f.mount(contract.KeySetup, patch.Setup())
	f.recipe(contract.TargetCommands, contract.TargetTrust)
	for key, at := range map[string]struct {
		path string
		mode fs.FileMode
	}{
		contract.KeyProxyEnv: {contract.PathProxyEnv, 0o600}, contract.KeyTrustedCABundle: {contract.PathTrustedCA, 0o644},
		contract.KeySetup: {contract.PathSetup, 0o755},
	} {
		content, err := os.ReadFile(filepath.Join(f.From, key))
		must(t, err)
		f.put(at.path, string(content), at.mode)
	}
	return f
}

// recipe mounts the list of files for targets.
func (f folders) recipe(targets ...contract.Target) {
	f.t.Helper()
	recipe, err := patch.NewRecipe(patch.Options{Targets: targets})
	must(f.t, err)
	data, err := patch.NodeData(nil, recipe)
	must(f.t, err)
	f.mount(contract.KeyNodeFiles, string(data[contract.KeyNodeFiles]))
}

func proxyEnv(t *testing.T, proxy string, noProxy ...string) string {
	t.Helper()
	vars := []systemd.Var{{Name: "HTTP_PROXY", Value: proxy}, {Name: "HTTPS_PROXY", Value: proxy}}
	for _, value := range noProxy {
		vars = append(vars, systemd.Var{Name: "NO_PROXY", Value: value})
	}
	content, err := systemd.EnvironmentFile(vars)
	must(t, err)
	return string(content)
}

// mount changes a key as kubelet does: keys are links.
func (f folders) mount(key, content string) {
	f.t.Helper()
	target := filepath.Join(f.From, "..data-"+key)
	must(f.t, os.WriteFile(target, []byte(content), 0o600))
	if err := os.Symlink(target, filepath.Join(f.From, key)); err != nil && !os.IsExist(err) {
		f.t.Fatal(err)
	}
}

func (f folders) path(name string) string { return filepath.Join(f.Root, name) }

func (f folders) put(name, content string, mode fs.FileMode) {
	f.t.Helper()
	must(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o750), os.WriteFile(f.path(name), []byte(content), 0o600),
		os.Chmod(f.path(name), mode))
}

// link makes a link at a path of the node.
func (f folders) link(name, to string) {
	f.t.Helper()
	must(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o750), os.Symlink(to, f.path(name)))
}

// tree lists what is below the root.
func (f folders) tree() map[string]string {
	f.t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(f.Root, func(path string, entry fs.DirEntry, err error) error {
		if path == f.path("/run") {
			return fs.SkipDir // the lock stays until a reboot
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := []byte("a link")
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(path) //nolint:gosec // of the test
		}
		found[strings.TrimPrefix(path, f.Root)] = info.Mode().String() + " " + string(content)
		return err
	})
	must(f.t, err)
	return found
}

// has compares what is below the root with what was there.
func (f folders) has(want map[string]string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.tree()); diff != "" {
		f.t.Errorf("(-want +got):\n%s", diff)
	}
}

// counting returns the URL of a server that answers request n, from 1, with a status, and how many it has answered.
func counting(t *testing.T, status func(n int32) int) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status(requests.Add(1)))
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func TestApply_WritesFilesWithTheirModes(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	want := proxyEnv(t, "http://u:"+secret+"@proxy:3128")
	f.mount(contract.KeyProxyEnv, want)
	before := f.tree()
	var out, log bytes.Buffer
	if err := agent.DryRun(f.Options, &out); err != nil || out.String() != "write /etc/capi-proxy-patcher/proxy.env\n" {
		t.Errorf("dry run: %s %v", &out, err)
	}
	f.has(before)
	must(t, agent.Apply(t.Context(), f.Options, nil, &log))
	before[contract.PathProxyEnv] = "-rw------- " + want
	f.has(before)
	if strings.Contains(log.String()+out.String(), "p%40") {
		t.Errorf("the password is in the log: %s%s", &log, &out)
	}
}

func TestApply_FollowsNoLink(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]struct{ at, to string }{
		"a file":                  {contract.PathProxyEnv, "elsewhere"},
		"the folder":              {"/etc/capi-proxy-patcher", "elsewhere"},
		"a folder above":          {"/etc", "elsewhere"},
		"a file, out of the root": {contract.PathProxyEnv, "/"},
		"a folder of the journal": {"/etc/capi-proxy-patcher/.node-apply", "elsewhere"},
		"a folder of a drop-in":   {"/etc/systemd/system/containerd.service.d", "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolders(t)
			f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:new@proxy:3128"))
			f.recipe(contract.Targets()...)
			f.put(systemd.DropInPath("containerd"), systemd.EnvironmentFileHeader+"\n", 0o644)
			elsewhere := filepath.Join(f.Root, "elsewhere")
			if link.to != "elsewhere" {
				elsewhere = filepath.Join(t.TempDir(), "elsewhere")
			}
			if err := os.Rename(f.path(link.at), elsewhere); os.IsNotExist(err) {
				f.put("/elsewhere/mine", "mine", 0o600)
			} else if err != nil {
				t.Fatal(err)
			}
			target, err := filepath.Rel(filepath.Dir(f.path(link.at)), elsewhere)
			must(t, err, os.Symlink(target, f.path(link.at)))
			before := f.tree()
			// The next step would be to ask systemd, which no machine of a test has.
			if err := agent.Apply(t.Context(), f.Options, nil, &bytes.Buffer{}); err == nil || strings.Contains(err.Error(), "systemd: ") {
				t.Errorf("the link is not refused: %v", err)
			}
			f.has(before)
		})
	}
}

func TestApply_AsksTheDefaultEndpointOnlyIfThereIsNoOther(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	url, requests := counting(t, func(int32) int { return http.StatusBadGateway })
	f.Endpoint = url
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:new@proxy:3128"))
	if err := agent.Apply(t.Context(), f.Options, nil, io.Discard); err == nil || !strings.Contains(err.Error(), url+": status 502") {
		t.Error(err)
	}
	other, _ := counting(t, func(int32) int { return http.StatusOK })
	f.mount(contract.KeyReadiness, other)
	asked := requests.Load()
	if err := agent.Apply(t.Context(), f.Options, nil, io.Discard); err != nil || requests.Load() != asked {
		t.Errorf("%v, and %d requests", err, requests.Load()-asked)
	}
}

// The drop-in is not there yet: what counts is the unit as it will be.
func TestHealthy_NamesTheFileThatWouldHaveTheLastWord(t *testing.T) {
	t.Parallel()
	const folder, name = "/etc/systemd/system/kubelet.service.d/", "kubelet would have other values than those of the proxy Secret: "
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets()})
	must(t, err)
	data, err := patch.NodeData(map[string][]byte{
		contract.KeyProxyEnv: []byte(proxyEnv(t, "http://u:"+secret+"@proxy:3128", "a.example.com")), contract.KeyTrustedCABundle: []byte(systemd.EnvironmentFileHeader + "\n"),
	}, recipe)
	must(t, err)
	version, err := node.NewVersion(data)
	must(t, err)
	for at, test := range map[string]struct{ dropIn, want string }{
		"10-earlier.conf":    {"[Service]\nEnvironmentFile=/etc/mine.env\n", ""},
		"zz-later.conf":      {"[Service]\nEnvironmentFile=/etc/mine.env\n", name + "HTTPS_PROXY from /etc/mine.env, which " + folder + "zz-later.conf reads"},
		"zz-reset.conf":      {"[Service]\nEnvironmentFile=\n", name + "HTTP_PROXY, HTTPS_PROXY, NO_PROXY not read from " + contract.PathProxyEnv + ", because " + folder + "zz-reset.conf resets EnvironmentFile="},
		"zz-no-drop-in.text": {"[Service]\nEnvironmentFile=\n", ""},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			f := newFolders(t)
			f.put("/etc/mine.env", "HTTPS_PROXY=http://mine\n", 0o644)
			f.put(folder+at, test.dropIn, 0o644)
			on, err := agent.Open(f.Root)
			must(t, err)
			got := ""
			if err := agent.New(t.Context(), f.Root, on, func(string) {}).Healthy(version, nil, []string{"kubelet"}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestApply_WritesNothingWithoutSystemd(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.recipe(contract.Targets()...)
	before := f.tree()
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:"+secret+"@proxy:3128"))
	err := agent.Apply(t.Context(), f.Options, nil, &bytes.Buffer{})
	if err == nil || !strings.HasPrefix(err.Error(), "connecting to systemd: ") {
		t.Error(err)
	}
	f.has(before)
}

// An annotation that goes away and comes back, a forced deletion of a Pod, or a run by hand: two applies on one node.
func TestApply_WaitsForAnotherOne(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	other := folders{t, agent.Options{Root: f.Root, From: t.TempDir()}}
	other.recipe(contract.TargetCommands, contract.TargetTrust)
	f.State = ""
	for round := range 50 {
		versions := map[string]string{}
		for who, from := range map[string]folders{"a": f, "b": other} {
			mark := fmt.Sprintf("%s%d", who, round)
			env, bundle := proxyEnv(t, "http://u:"+mark+"@proxy:3128"), systemd.EnvironmentFileHeader+"\n# "+mark+"\n"
			from.mount(contract.KeyProxyEnv, env)
			from.mount(contract.KeyTrustedCABundle, bundle)
			versions[env] = bundle
		}
		var running sync.WaitGroup
		errs := make([]error, 2)
		for i, o := range []agent.Options{f.Options, other.Options} {
			running.Go(func() { errs[i] = agent.Apply(t.Context(), o, nil, io.Discard) })
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		env, err := os.ReadFile(f.path(contract.PathProxyEnv))
		bundle, err2 := os.ReadFile(f.path(contract.PathTrustedCA))
		if err := errors.Join(err, err2); err != nil || versions[string(env)] != string(bundle) {
			t.Fatalf("round %d: a mixture of versions, %v:\n%s%s", round, err, env, bundle)
		}
		if left, err := filepath.Glob(f.path("/etc/capi-proxy-patcher/.*")); err != nil || len(left) > 0 {
			t.Fatalf("round %d: left %q, %v", round, left, err)
		}
	}
}

// The endpoint answers once, before anything is written, and not afterwards.
func TestApply_RemembersWhatWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	before := f.tree()
	url, requests := counting(t, func(n int32) int {
		if n > 1 {
			return http.StatusBadGateway
		}
		return http.StatusOK
	})
	f.mount(contract.KeyReadiness, url+"/?token="+secret)
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:"+secret+"@proxy:3128"))
	want := "readiness endpoints do not answer with the mounted values: " + url +
		": status 502; the previous files were restored"
	asked := int32(0)
	for range 3 {
		err := agent.Apply(t.Context(), f.Options, nil, &bytes.Buffer{})
		if failed := (*node.RolledBackError)(nil); !errors.As(err, &failed) || failed.Left != nil || err.Error() != want {
			t.Fatal(err)
		}
		f.has(before)
		if asked == 0 {
			asked = requests.Load()
		}
	}
	if requests.Load() != asked {
		t.Errorf("it is tried again: %d requests, then %d", asked, requests.Load())
	}
	remembered, err := os.ReadFile(filepath.Join(f.State, "failed"))
	if err != nil || strings.Contains(string(remembered), "p%40") {
		t.Errorf("remembers %q, %v", remembered, err)
	}
	f.mount(contract.KeyProxyEnv, proxyEnv(t, "http://u:third@proxy:3128"))
	if err := agent.Apply(t.Context(), f.Options, nil, &bytes.Buffer{}); err == nil || requests.Load() == asked {
		t.Errorf("another version is not tried: %v", err)
	}
}

func TestRead_BoundsWhatIsMounted(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.mount(contract.KeyTrustedCABundle, systemd.EnvironmentFileHeader+"\n"+strings.Repeat("x", 3<<20))
	if err := agent.Apply(t.Context(), f.Options, nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "longer than 2097152 bytes") {
		t.Errorf("%v", err)
	}
}

func TestWatch_EndsWithWhatDiffers(t *testing.T) {
	t.Parallel()
	f := newFolders(t)
	f.recipe(contract.TargetKubelet, contract.TargetTrust)
	recipe, err := patch.NewRecipe(patch.Options{Targets: []contract.Target{contract.TargetKubelet}})
	must(t, err)
	f.put(recipe.Files[1].Path, recipe.Files[1].Content, 0o644)
	f.put(contract.PathNodeEnv, systemd.EnvironmentFileHeader+"\nNO_PROXY=\"10.0.0.1\"\n", 0o600)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	watch := func() { ended <- agent.Watch(ctx, f.Options, nil, time.Millisecond) }
	go watch()
	must(t, os.Rename(f.path(contract.PathSetup), f.path("/setup.sh")))
	const differs = "not as in the mounted Secret: "
	if err := <-ended; err == nil || err.Error() != differs+contract.PathSetup {
		t.Errorf("says %v", err)
	}
	f.put(contract.PathSetup, "#!/bin/sh\n"+systemd.EnvironmentFileHeader+"\n", 0o644)
	f.put(contract.PathProxyEnv, "HTTP_PROXY="+secret+"\n", 0o600)
	f.put(contract.PathNodeEnv, systemd.EnvironmentFileHeader+"\nHTTP_PROXY=\"mine\"\n", 0o600)
	go watch()
	if err := <-ended; err == nil || err.Error() != differs+strings.Join([]string{contract.PathProxyEnv, contract.PathSetup, contract.PathNodeEnv}, ", ") {
		t.Errorf("says %v", err)
	}
	f.put(contract.PathNodeEnv, systemd.EnvironmentFileHeader+"\nNO_PROXY=\"10.0.0.1,10.0.0.2\"\n", 0o600)
	f.put(contract.PathProxyEnv, proxyEnv(t, "http://u:old@proxy:3128"), 0o600)
	f.put(contract.PathSetup, patch.Setup(), 0o755)
	go watch()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := agent.Watch(t.Context(), agent.Options{Root: "/does/not/exist"}, nil, time.Hour); err == nil {
		t.Error("watches a folder that does not exist")
	}
}
