package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

var (
	errInjected = errors.New("injected")
	// errCut is what no call returns: it stands for the end of the power, by panic.
	errCut = errors.New("power cut")
)

// inode is a file or a folder of a disk. A folder has two sets of names: what programs see, and what a power cut leaves.
type inode struct {
	content       []byte
	mode          fs.FileMode
	link, foreign bool
	names         map[string]*inode
	durable       map[string]*inode
}

func newFolder() *inode {
	return &inode{mode: fs.ModeDir | 0o755, names: map[string]*inode{}, durable: map[string]*inode{}}
}

// disk is a node's disk with what runs on it. It is Files and Services.
type disk struct {
	root  *inode
	calls []string
	// failAt is the call that fails, cutAt the one before which the power fails; from 1, 0 is never.
	failAt, cutAt int
	// refuses are the values of an environment with which a service does not come up, an endpoint does not answer.
	refuses func(call string, env, ca []byte) bool

	// running is what services have read: the environment by service, and the certificates they started with.
	running map[string]string
	trusted string // by the trust store

	locked bool
	room   uint64
}

// call counts a call and injects what is to be injected.
func (d *disk) call(format string, args ...any) error {
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
	switch len(d.calls) {
	case d.failAt:
		return fmt.Errorf("%s: %w", d.calls[len(d.calls)-1], errInjected)
	case d.cutAt:
		panic(errCut)
	}
	return nil
}

// find returns what is at a path, and its folder.
func (d *disk) find(name string) (folder, found *inode) {
	found = d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
		if found == nil {
			return nil, nil
		}
		folder, found = found, found.names[part]
	}
	return folder, found
}

func (d *disk) Read(name string) (node.File, error) {
	if err := d.call("read %s", name); err != nil {
		return node.File{}, err
	}
	_, found := d.find(name)
	switch {
	case found == nil:
		return node.File{}, fs.ErrNotExist
	case found.names != nil || found.link:
		return node.File{}, node.ErrNotRegular
	}
	return node.File{Content: bytes.Clone(found.content), Mode: found.mode, Owned: !found.foreign}, nil
}

func (d *disk) List(name string) ([]string, error) {
	if err := d.call("list %s", name); err != nil {
		return nil, err
	}
	if _, found := d.find(name); found != nil {
		return slices.Sorted(maps.Keys(found.names)), nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) Write(name string, content node.Content, mode fs.FileMode) error {
	folder, found := d.find(name)
	if found != nil || folder == nil {
		return fs.ErrExist
	}
	torn := &inode{content: content[:len(content)/2], mode: mode}
	folder.names[path.Base(name)] = torn // that is what a failure or a cut leaves
	if err := d.call("write %s", name); err != nil {
		return err
	}
	torn.content = bytes.Clone(content)
	return nil
}

func (d *disk) Rename(from, to string) error {
	if err := d.call("rename %s", from); err != nil {
		return err
	}
	source, moved := d.find(from)
	target, replaced := d.find(to)
	if moved == nil {
		return fs.ErrNotExist
	}
	if replaced != nil && replaced.names != nil && len(replaced.names) > 0 {
		return fs.ErrExist
	}
	delete(source.names, path.Base(from))
	target.names[path.Base(to)] = moved
	return nil
}

func (d *disk) Remove(name string) error {
	if err := d.call("remove %s", name); err != nil {
		return err
	}
	folder, found := d.find(name)
	if found == nil {
		return fs.ErrNotExist
	}
	if len(found.names) > 0 {
		return fs.ErrExist
	}
	delete(folder.names, path.Base(name))
	return nil
}

func (d *disk) Mkdir(name string, _ fs.FileMode) error {
	if err := d.call("mkdir %s", name); err != nil {
		return err
	}
	folder, found := d.find(name)
	if found != nil {
		return fs.ErrExist
	}
	folder.names[path.Base(name)] = newFolder()
	return nil
}

func (d *disk) Sync(name string) error {
	if err := d.call("sync %s", name); err != nil {
		return err
	}
	_, found := d.find(name)
	if found == nil {
		return fs.ErrNotExist
	}
	found.durable = maps.Clone(found.names)
	return nil
}

// Lock does not wait: nobody unlocks meanwhile.
func (d *disk) Lock(time.Duration) (func(), error) {
	if err := d.call("lock /run"); err != nil {
		return nil, err
	}
	if d.locked {
		return nil, node.ErrLocked
	}
	d.locked = true
	return func() { d.locked = false }, nil
}

func (d *disk) Check(v node.Version) error {
	if err := d.call("check"); err != nil {
		return err
	}
	if d.refuses != nil && d.refuses("check", []byte(v.Variable("HTTP_PROXY")), v.Certificates()) {
		return errors.New("the endpoint does not answer")
	}
	return nil
}

func (d *disk) Ready() error { return d.call("ready") }

// OwnAddresses writes what setup.sh derives from the environment.
func (d *disk) OwnAddresses() error {
	if err := d.call("addresses"); err != nil {
		return err
	}
	if d.refuses != nil && d.refuses("addresses", d.content(contract.PathProxyEnv), nil) {
		return errors.New("the script fails")
	}
	d.addOwn()
	return nil
}

// addOwn writes node.env: NO_PROXY with an address.
func (d *disk) addOwn() {
	list := ""
	for line := range strings.Lines(string(d.content(contract.PathProxyEnv))) {
		if strings.HasPrefix(line, "NO_PROXY=") {
			list += strings.Replace(line, "\"", "\"10.0.0.1,", 1)
		}
	}
	d.put(contract.PathNodeEnv, &inode{content: []byte(systemd.EnvironmentFileHeader + "\n" + list), mode: 0o600})
}

// marker is what setup.sh has while certificates of the product may be in the trust store.
const marker = "/etc/capi-proxy-patcher/trusts"

// Trust does what setup.sh does: nothing without certificates and without its marker.
func (d *disk) Trust() error {
	bundle := strings.TrimPrefix(string(d.content(contract.PathTrustedCA)), systemd.EnvironmentFileHeader+"\n")
	_, marked := d.find(marker)
	if acts := bundle != "" || marked != nil; acts {
		d.put(marker, &inode{mode: 0o644})
	} else {
		return d.call("trust")
	}
	if err := d.call("trust"); err != nil {
		return err
	}
	if d.refuses != nil && d.refuses("trust", nil, d.content(contract.PathTrustedCA)) {
		return errors.New("the command fails")
	}
	if d.trusted = bundle; bundle == "" {
		delete(must(d.find("/etc/capi-proxy-patcher")).names, "trusts")
	}
	return nil
}

func (d *disk) Room(name string) (uint64, error) { return d.room, d.call("room %s", name) }

func (d *disk) Healthy(_ node.Version, services, _ []string) error {
	if err := d.call("healthy %s", strings.Join(services, ",")); err != nil {
		return err
	}
	if d.refuses != nil && d.refuses("healthy", nil, nil) {
		return errors.New("containerd is not healthy")
	}
	return nil
}

func (d *disk) Restart(services []string) error {
	if err := d.call("restart %s", strings.Join(services, ",")); err != nil {
		return err
	}
	for _, service := range services {
		if strings.Contains(string(d.content(systemd.DropInPath(service))), "EnvironmentFile=") && d.content(contract.PathProxyEnv) == nil {
			return fmt.Errorf("%s does not start without its variables", service)
		}
		d.running[service] = d.readBy(service)
	}
	if d.refuses != nil && d.refuses("restart", d.content(contract.PathProxyEnv), nil) {
		return errors.New("containerd does not answer")
	}
	return nil
}

// readBy is what a service reads when it starts: its environment, if it has the drop-in, and the trust store.
func (d *disk) readBy(service string) string {
	environment := string(d.content(systemd.DropInPath(service)))
	if strings.Contains(environment, "EnvironmentFile=") {
		environment += string(d.content(contract.PathProxyEnv)) + string(d.content(contract.PathNodeEnv))
	}
	return environment + d.trusted
}

// content is that of a file, outside of what counts.
func (d *disk) content(name string) []byte {
	if _, found := d.find(name); found != nil {
		return found.content
	}
	return nil
}

// put writes a file, durably, outside of what counts.
func (d *disk) put(name string, file *inode) {
	folder := d.root
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for _, part := range parts[:len(parts)-1] {
		if folder.names[part] == nil {
			folder.names[part] = newFolder()
		}
		folder.durable[part] = folder.names[part]
		folder = folder.names[part]
	}
	last := parts[len(parts)-1]
	folder.names[last], folder.durable[last] = file, file
}

// reboot starts the node after a power cut: names that were not synced are as they were before if lost is set, and
// services read what there is.
func (d *disk) reboot(lost bool) {
	if lost {
		d.powerCut()
	}
	d.restarted()
	d.calls, d.cutAt, d.failAt = nil, 0, 0
}

// powerCut takes the names that were not synced.
func (d *disk) powerCut() { forgetNames(d.root) }

func (d *disk) restarted() {
	for service := range d.running {
		d.running[service] = d.readBy(service)
	}
}

func forgetNames(folder *inode) {
	folder.names = maps.Clone(folder.durable)
	for _, inside := range folder.names {
		if inside.names != nil {
			forgetNames(inside)
		}
	}
}

// files lists the paths of all files with what is there.
func (d *disk) files() map[string]string {
	files := d.tree()
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, "/") })
	return files
}

// tree lists folders, too, whose paths end in a slash.
func (d *disk) tree() map[string]string {
	files := map[string]string{}
	var walk func(at string, n *inode)
	walk = func(at string, n *inode) {
		if n.names == nil {
			files[at] = fmt.Sprintf("%o %t %s", n.mode, n.foreign, n.content)
			return
		}
		files[at+"/"] = "a folder"
		for name, inside := range n.names {
			walk(at+"/"+name, inside)
		}
	}
	walk("", d.root)
	return files
}
