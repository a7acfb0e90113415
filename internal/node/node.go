// Package node brings the files of a running node to another version: whole files only, with what was there kept until
// the services run with the new ones, and put back otherwise. It decides and orders; package nodeagent makes the system
// calls.
//
// While an apply is under way the folder of the product on the node holds a journal, a folder with the files of before.
// It appears and goes by a rename, so a run that finds one knows that the run before it did not end, finishes its work
// or puts the files back, and restarts services, because nobody knows what they have read.
package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

const (
	// folder holds every file that an apply writes.
	folder = "/etc/" + contract.Name
	// journal holds the files of before, under their names, and files that are being written.
	journal = folder + "/.node-apply"
	// scrap is a journal that is being made or removed. It has no meaning.
	scrap = folder + "/.node-apply.scrap"
)

// modeNodeEnv is the mode of contract.PathNodeEnv.
const modeNodeEnv fs.FileMode = 0o600

// The services that read contract.PathProxyEnv.
const (
	containerd = string(contract.TargetContainerd)
	kubelet    = string(contract.TargetKubelet)
)

// ErrNotRegular is the error of Files.Read for a symbolic link, a folder, or anything else that is no regular file, and
// for a path that has a symbolic link in it.
var ErrNotRegular = errors.New("not a regular file")

// ErrLocked is the error of Files.Lock for a folder that another process has locked.
var ErrLocked = errors.New("locked")

// lockWait is how long a run waits for another one on the same node.
const lockWait = 2 * time.Minute

// Content is the content of a file. It may hold credentials, and prints itself redacted.
type Content []byte

// Format implements fmt.Formatter. It prints nothing of the content, whatever the verb.
func (Content) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// File is a regular file.
type File struct {
	Content Content
	Mode    fs.FileMode
	// Owned reports whether user and group are those that Files.Write gives.
	Owned bool
}

// Files are system calls on the root of a node. Names are absolute paths of the node. No call follows a symbolic link.
// Errors name paths and hold nothing of a content.
type Files interface {
	// Read returns a file; fs.ErrNotExist if there is none, and ErrNotRegular.
	Read(name string) (File, error)
	// List returns the names in a folder; fs.ErrNotExist if there is none.
	List(name string) ([]string, error)
	// Write creates a file that does not exist, owned by root, and syncs its content.
	Write(name string, content Content, mode fs.FileMode) error
	// Rename renames a file, over one that may exist, or a folder.
	Rename(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// Mkdir creates a folder that only root may enter.
	Mkdir(name string) error
	// Sync makes the names in a folder durable.
	Sync(name string) error
	// Lock locks a folder until unlock is called or the process ends. It waits for another lock at most as long as wait
	// says, then it returns ErrLocked; fs.ErrNotExist if there is no folder.
	Lock(name string, wait time.Duration) (unlock func(), err error)
}

// Services are what an apply does to a node beside files. Each call is bounded in time. Errors hold no credential.
type Services interface {
	// Ready fails if services cannot be restarted.
	Ready() error
	// Check asks the readiness endpoints of a version with its values.
	Check(Version) error
	// OwnAddresses writes contract.PathNodeEnv: NO_PROXY of contract.PathProxyEnv with the node's own addresses.
	OwnAddresses() error
	// Trust makes the node trust the certificates in contract.PathTrustedCA, and no others of the product.
	Trust() error
	// Restart makes systemd read its units, restarts services in the given order, and returns when they answer.
	Restart(services []string) error
}

// Host is a node.
type Host struct {
	Files    Files
	Services Services
	// Say is told each step before it is done.
	Say func(step string)
}

// RolledBackError reports an apply that failed after it had written. The previous files are restored, and the services
// run with them, unless Left is set.
type RolledBackError struct {
	Cause error
	// Left is why the node is not as it was before. The journal is still there then, and the next run continues.
	Left error
}

func (e *RolledBackError) Error() string {
	if e.Left != nil {
		return fmt.Sprintf("%v; and the previous files could not be restored: %v", e.Cause, e.Left)
	}
	return fmt.Sprintf("%v; the previous files were restored", e.Cause)
}

func (e *RolledBackError) Unwrap() error { return e.Cause }

// Apply brings the node to a version. A nil error means that every file of it that the node has is whole, durable and
// in force. If nothing differs nothing is asked, written or restarted.
//
// A *RolledBackError comes after files were written; any other error of a run that found no journal means that the node
// is as it was.
//
// tried is the cause of an earlier try of the same version that was rolled back, or nil. It is not tried again: Apply
// only ends what is left of it, and returns a *RolledBackError with that cause.
//
// One run at a time has the folder of the product; a run that waits too long for another one changes nothing.
func (h Host) Apply(want Version, tried error) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return h.apply(want, tried)
}

// lock locks the folder of the product. A node without the folder has nothing to lock.
func (h Host) lock() (unlock func(), err error) {
	unlock, err = h.Files.Lock(folder, lockWait)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() {}, nil
	case errors.Is(err, ErrLocked):
		return nil, fmt.Errorf("another %s node command has used %s on this node for %s and has not ended: nothing was "+
			"changed; run this one again when that one has ended", contract.Name, folder, lockWait)
	}
	return unlock, err
}

func (h Host) apply(want Version, tried error) error {
	now, err := h.look()
	if err != nil {
		return err
	}
	if err := h.clear(scrap); err != nil {
		return err
	}
	plan := now.plan(want)
	if now.interrupted {
		h.Say("continuing after an interruption")
	}
	if tried != nil {
		if now.interrupted {
			return h.undo(now, plan, tried)
		}
		return &RolledBackError{Cause: tried}
	}
	if plan.IsEmpty() {
		return nil
	}
	if !now.interrupted {
		if err := h.ready(want, plan); err != nil {
			return err
		}
		if err := h.keep(now); err != nil {
			return joined([]error{err, h.forget()})
		}
	} else if err := h.check(want, plan); err != nil {
		return h.undo(now, plan, err)
	}
	if err := h.carryOut(now, want, plan); err != nil {
		return h.undo(now, plan, err)
	}
	return h.forget()
}

// Plan returns what Apply would do, and writes nothing.
func (h Host) Plan(want Version) (Plan, error) {
	unlock, err := h.lock()
	if err != nil {
		return Plan{}, err
	}
	defer unlock()
	now, err := h.look()
	return now.plan(want), err
}

// ready asks for all that can be known before anything is written.
func (h Host) ready(want Version, plan Plan) error {
	if len(plan.Services) > 0 {
		if err := h.Services.Ready(); err != nil {
			return err
		}
	}
	return h.check(want, plan)
}

// check asks the endpoints if something changes that they depend on.
func (h Host) check(want Version, plan Plan) error {
	if len(want.endpoints) == 0 || !plan.Trust && !plan.environment {
		return nil
	}
	h.Say("asking the readiness endpoints with the new values")
	return h.Services.Check(want)
}

func (h Host) carryOut(now state, want Version, plan Plan) error {
	for _, f := range patch.NodeFiles() {
		content, given := want.files[f.Path]
		if _, has := now.before[f.Path]; !has || !given {
			continue
		}
		if _, err := h.replace(f.Path, content, f.Mode); err != nil {
			return err
		}
	}
	if err := h.inForce(plan, false); err != nil {
		return err
	}
	return h.check(want, plan)
}

// inForce makes services use the files that there are: all that is possible if whatever is set, and nothing more after
// a failure otherwise.
func (h Host) inForce(plan Plan, whatever bool) error {
	var failed []error
	if plan.Trust {
		h.Say("installing the certificates of " + contract.PathTrustedCA)
		failed = append(failed, h.Services.Trust())
	}
	if len(plan.Services) > 0 && plan.environment && (whatever || joined(failed) == nil) {
		h.Say("adding the node's own addresses to NO_PROXY in " + contract.PathNodeEnv)
		failed = append(failed, h.Services.OwnAddresses())
	}
	if len(plan.Services) > 0 && (whatever || joined(failed) == nil) {
		h.Say("restarting " + strings.Join(plan.Services, " and "))
		failed = append(failed, h.Services.Restart(plan.Services))
	}
	return joined(failed)
}

// undo restores the previous files.
func (h Host) undo(now state, plan Plan, cause error) error {
	h.Say("restoring the previous files")
	var failed []error
	touched := now.interrupted || slices.Contains(plan.writes, contract.PathNodeEnv)
	for _, f := range patch.NodeFiles() {
		if content, has := now.before[f.Path]; has {
			written, err := h.replace(f.Path, content, f.Mode)
			touched, failed = touched || written || err != nil, append(failed, err)
		}
	}
	if touched {
		failed = append(failed, h.inForce(plan, true))
	}
	left := joined(failed)
	if left == nil {
		left = h.forget()
	}
	if !touched && left == nil {
		return cause
	}
	return &RolledBackError{Cause: cause, Left: left}
}

// joined is errors.Join on one line.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) < 2 { //nolint:mnd // one error stays as it is
		return errors.Join(errs...)
	}
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(slices.Compact(texts), "; "))
}

// keep makes the journal.
func (h Host) keep(now state) error {
	if err := h.Files.Mkdir(scrap); err != nil {
		return err
	}
	for _, f := range patch.NodeFiles() {
		content, has := now.before[f.Path]
		if !has {
			continue
		}
		if err := h.Files.Write(path.Join(scrap, path.Base(f.Path)), content, 0o600); err != nil {
			return err
		}
	}
	if err := h.Files.Sync(scrap); err != nil {
		return err
	}
	return h.rename(scrap, journal)
}

// forget removes the journal, if there is one, with what was in it.
func (h Host) forget() error {
	err := h.rename(journal, scrap)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return h.clear(scrap)
}

// clear removes a folder of ours and what is in it.
func (h Host) clear(name string) error {
	names, err := h.Files.List(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, inside := range names {
		if err := h.Files.Remove(path.Join(name, inside)); err != nil {
			return err
		}
	}
	if err := h.Files.Remove(name); err != nil {
		return err
	}
	return h.Files.Sync(folder)
}

func (h Host) rename(from, to string) error {
	if err := h.Files.Rename(from, to); err != nil {
		return err
	}
	return h.Files.Sync(folder)
}

// replace gives a managed file its content and mode, whole and durable, and reports whether it has written. A file of
// somebody else is an error.
func (h Host) replace(name string, content Content, mode fs.FileMode) (written bool, err error) {
	current, found, err := h.managed(name)
	if err != nil || found && current.isLike(content, mode) {
		return false, err
	}
	temporary := path.Join(journal, path.Base(name)+".new")
	if err := h.Files.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := h.Files.Write(temporary, content, mode); err != nil {
		return false, err
	}
	return true, h.rename(temporary, name)
}

// isLike reports whether a file needs no replacement.
func (f File) isLike(content Content, mode fs.FileMode) bool {
	return f.Owned && f.Mode == mode && bytes.Equal(f.Content, content)
}

// managed returns a file of the product, if there is one.
func (h Host) managed(name string) (f File, found bool, err error) {
	f, err = h.Files.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, false, nil
	case errors.Is(err, ErrNotRegular):
		return File{}, false, fmt.Errorf("%s on this node is not a regular file, or below a symbolic link: it is not "+
			"%s's and stays as it is; replace the Machine, or restore the file", name, contract.Name)
	case err != nil:
		return File{}, false, err
	case !patch.HasMark(string(f.Content)):
		return File{}, false, fmt.Errorf("%s on this node has no line \"Managed by %s\": it is a file of somebody else and "+
			"stays as it is; replace the Machine, or restore the file", name, contract.Name)
	}
	return f, true, nil
}

// usesFile reports whether a service reads contract.PathProxyEnv, and whether its drop-in is the product's.
func (h Host) usesFile(service string) (uses, managed bool, err error) {
	f, err := h.Files.Read(systemd.DropInPath(service))
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("reading %s: %w", systemd.DropInPath(service), err)
	}
	const line = "EnvironmentFile=" + contract.PathProxyEnv
	return slices.Contains(strings.Split(string(f.Content), "\n"), line), patch.HasMark(string(f.Content)), nil
}
