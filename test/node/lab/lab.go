//go:build node

// Package lab is the network around test nodes: proxies with squid, the only
// way out, and outside of them a registry of container images. All of it is in
// network, mount and PID namespaces of its own and ends with the test, even if
// that is killed.
package lab

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

//go:embed lab.sh
var labScript []byte

const (
	// ProxyHost is the address of all proxies, and what machines have as
	// their default route.
	ProxyHost = "10.77.0.1"
	// Outside is the address of the one host that proxies reach and machines
	// do not.
	Outside = "203.0.113.10"
	// proxiesOutside is the address by which the outside sees all proxies.
	proxiesOutside = "203.0.113.1"
	// bridge is what machines are connected to.
	bridge = "br0"
	// prefixLength is that of the machines' network.
	prefixLength = 24
	// registryPort is that of https.
	registryPort = 443
	// registryName is the name of the registry's folder.
	registryName = "registry"
)

// Image is an image of the registry: see the command registry.
type Image struct {
	Repository, Tag string
	Files           map[string]string
	Entrypoint      []string
}

// Config is what a lab is made of.
type Config struct {
	// Squid is the folder of squid's root file system, Registry the program
	// of the command registry.
	Squid, Registry string
	// Names are the hosts that proxies know, all of them with the address
	// Outside. Nothing else resolves a name.
	Names []string
	// Images are what the registry has, under all of Names.
	Images []Image
	// Authority signs the registry's certificate.
	Authority *pki.Authority
}

// Lab is a running network.
type Lab struct {
	folder  string
	names   []string
	orders  io.WriteCloser
	answers *bufio.Scanner
	leader  string // PID of its first process, as the host sees it
	trusted []byte
}

// Start makes the network and starts the registry. It ends with the test.
func Start(t *testing.T, config Config) *Lab {
	t.Helper()
	l := &Lab{folder: t.TempDir(), names: config.Names, trusted: config.Authority.PEM}
	l.write(t, "lab.sh", labScript)
	must(t, os.Symlink(config.Squid, filepath.Join(l.folder, "squid")))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", //nolint:gosec // paths of this test
		"--mount-proc", "--propagation", "private", "sh", filepath.Join(l.folder, "lab.sh"), l.folder)
	var err error
	l.orders, err = cmd.StdinPipe()
	must(t, err)
	answers, err := cmd.StdoutPipe()
	must(t, err)
	l.answers = bufio.NewScanner(answers)
	log, err := os.Create(filepath.Join(l.folder, "log"))
	must(t, err)
	cmd.Stderr = log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = l.orders.Close()
		_ = cmd.Wait() // ended by what it has read, the end
		_ = log.Close()
	})
	l.addRegistry(t, config)
	l.order(t, "start", registryName)
	l.leader = childOf(t, cmd.Process.Pid)
	return l
}

// childOf returns the PID of the one child of a process.
func childOf(t *testing.T, pid int) string {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	return strings.TrimSpace(string(children))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (l *Lab) write(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(l.folder, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // squid's user enters it
	must(t, os.WriteFile(path, content, 0o600))
}

// order makes the first process do something and waits until it is done.
func (l *Lab) order(t *testing.T, verb, name string) {
	t.Helper()
	_, err := fmt.Fprintln(l.orders, verb, name)
	must(t, err)
	if !l.answers.Scan() || l.answers.Text() != "ok" {
		t.Fatalf("lab: %s %s: %s\n%s%s%s", verb, name, l.answers.Text(), l.read("log"), l.read(name+"/log"),
			l.read(name+"/cache.log"))
	}
}

// read returns a file of the lab, or why it cannot.
func (l *Lab) read(name string) string {
	text, err := os.ReadFile(filepath.Join(l.folder, name)) //nolint:gosec // a file of the lab
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

func (l *Lab) addRegistry(t *testing.T, config Config) {
	t.Helper()
	images, err := json.Marshal(config.Images)
	must(t, err)
	certificate, key := config.Authority.IssueFor(t, append([]string{Outside}, config.Names...)...)
	for name, content := range map[string][]byte{
		"kind": []byte("registry"), "port": []byte(strconv.Itoa(registryPort)),
		"images.json": images, "server.pem": certificate, "server.key": key,
	} {
		l.write(t, filepath.Join(registryName, name), content)
	}
	must(t, os.Symlink(config.Registry, filepath.Join(l.folder, registryName, "registry")))
}

// Network connects a machine with the given address, in 10.77.0.0/24.
func (l *Lab) Network(address string) *machine.Network {
	return &machine.Network{
		Namespace: "/proc/" + l.leader + "/ns/net", Bridge: bridge,
		Address: netip.PrefixFrom(netip.MustParseAddr(address), prefixLength), Gateway: netip.MustParseAddr(ProxyHost),
	}
}

// Proxy is a squid.
type Proxy struct {
	Name string
	Port int
	// Username and Password are what it asks for. A proxy without a username
	// asks for nothing.
	Username, Password string
	// Intercept makes it read TLS with certificates of its own, signed by
	// this authority, if set.
	Intercept *pki.Authority
}

// StartProxy starts a proxy and returns when it accepts connections.
func (l *Lab) StartProxy(t *testing.T, p Proxy) {
	t.Helper()
	files := map[string][]byte{
		"kind": []byte("proxy"), "port": []byte(strconv.Itoa(p.Port)), "squid.conf": []byte(squidConfig(p)),
		"hosts":      []byte(Outside + " " + strings.Join(l.names, " ") + "\n"),
		"origin.pem": l.trusted,
	}
	if p.Username != "" {
		files["passwd"] = []byte(p.Username + ":" + l.hash(t, p.Password) + "\n")
	}
	if p.Intercept != nil {
		files["ca.pem"] = slices.Concat(p.Intercept.PEM, p.Intercept.Key())
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		l.write(t, filepath.Join(p.Name, name), files[name])
	}
	l.order(t, "start", p.Name)
}

// StopProxy ends a proxy: connections to it are refused then.
func (l *Lab) StopProxy(t *testing.T, name string) {
	t.Helper()
	l.order(t, "stop", name)
}

// hash is what squid compares a password with, by crypt(5).
func (l *Lab) hash(t *testing.T, password string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "chroot", filepath.Join(l.folder, "squid"), "openssl", "passwd", "-6", "-stdin") //nolint:gosec // a path of this test
	cmd.Stdin = strings.NewReader(password + "\n")
	out, err := cmd.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// squidConfig is squid.conf. What is inside of a company's network is not what a proxy is for: it is denied.
func squidConfig(p Proxy) string {
	listen := fmt.Sprintf("http_port %s:%d", ProxyHost, p.Port)
	if p.Intercept != nil {
		listen += ` ssl-bump cert=/work/ca.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program /usr/lib/squid/security_file_certgen -s /work/certificates -M 4MB
tls_outgoing_options cafile=/work/origin.pem
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all`
	}
	users := ""
	if p.Username != "" {
		users = `auth_param basic program /usr/lib/squid/basic_ncsa_auth /work/passwd
auth_param basic children 2 startup=1
auth_param basic realm proxy
auth_param basic casesensitive on
acl known proxy_auth REQUIRED
http_access deny !known
`
	}
	return listen + `
visible_hostname proxy
cache_effective_user proxy
hosts_file /work/hosts
dns_nameservers 127.0.0.1
dns_timeout 1 second
connect_timeout 3 seconds
cache deny all
cache_mem 8 MB
pinger_enable off
pid_filename none
shutdown_lifetime 0 seconds
cache_log /work/cache.log
logformat node %ts.%03tu %>a %Ss/%03>Hs %rm %ru %[un
access_log stdio:/work/access.log logformat=node
buffered_logs off
` + users + `acl inside dst -n 10.0.0.0/8 127.0.0.0/8 169.254.0.0/16 192.0.2.0/24
acl names dstdomain -n localhost .svc .cluster.local .example.com .example.org
http_access deny inside
http_access deny names
http_access allow all
`
}
