// Package node brings a running node to a version of the product's files: it adds what is missing, replaces what
// differs, removes what is not wanted, and restores what was there before if the services do not run with it. A file of
// somebody else stays as it is. It decides and orders; package agent makes the system calls.
//
// While an apply is under way the folder of the product on the node holds a journal, a folder with the previous files.
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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// folder holds every file that an apply writes.
	folder = "/etc/" + contract.Name
	// journal holds the previous files, under their names, and files that are being written.
	journal = folder + "/.node-apply"
	// scrap is a journal that is being made or removed. It has no meaning.
	scrap = folder + "/.node-apply.scrap"
	// absent ends the name of a file of the journal that says that there was no file of the product.
	absent = ".absent"
	// marker is a file that contract.PathSetup keeps while the trust store may have certificates of the product.
	marker = folder + "/trusts"
	// disk is a folder of the disk with the files of the product, which is there before the first apply.
	disk = "/etc"
)

const (
	modeNodeEnv fs.FileMode = 0o600 // of contract.PathNodeEnv
	// modePrivate is the mode of folders that only root may enter, modeFolder of the folders that bootstrap makes.
	modePrivate, modeFolder fs.FileMode = 0o700, 0o755
)

// spare is the room on the disk, in bytes, that stays beside the files: for the trust store, and for the services.
const spare = 16 << 20

// ErrNotRegular is the error of Files.Read for a symbolic link, a folder, or anything else that is no regular file, and
// for a path that has a symbolic link in it.
var ErrNotRegular = errors.New("not a regular file")

// ErrLocked is the error of Files.Lock while another process has the lock.
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
	// Mkdir creates a folder.
	Mkdir(name string, mode fs.FileMode) error
	// Room returns how many bytes can be written to the disk of a folder.
	Room(name string) (uint64, error)
	// Sync makes the names in a folder durable.
	Sync(name string) error
	// Lock takes the lock of the node, which only root can take, until unlock is called or the process ends. It waits for
	// another one at most as long as wait says, then it returns ErrLocked.
	Lock(wait time.Duration) (unlock func(), err error)
}

// Services are what an apply does to a node beside files. Each call is bounded in time. Errors hold no credential.
type Services interface {
	// Ready fails if services cannot be restarted.
	Ready() error
	// Healthy fails if a service would not come back from a restart, or would not use a version: it is not healthy now,
	// its configuration cannot be loaded, or another file has other values for it. reads are the services that read the
	// variables of the version.
	Healthy(want Version, services, reads []string) error
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
	// Say reports each step before it is done.
	Say func(step string)
	// Turn waits until the node may change, if it is set. It is called if an apply has something to do, or cannot be done.
	Turn func() error
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

// Apply brings the node to a version. A nil error means that every file of it is whole, durable and in force, and that
// there is no other file of the product. If nothing differs nothing is asked, written or restarted.
//
// A *RolledBackError comes after files were written; any other error of a run that found no journal means that the node
// is as it was.
//
// tried is the cause of an earlier try of the same version that was rolled back, or nil. It is not tried again: Apply
// only ends what is left of it, and returns a *RolledBackError with that cause.
//
// One run at a time works on a node; a run that waits too long for another one changes nothing.
func (h Host) Apply(want Version, tried error) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	now, err := h.look(want)
	if h.Turn != nil && (err != nil || !now.plan(want).IsEmpty()) {
		unlock() // others look and change while this one waits
		if err := h.Turn(); err != nil {
			return err
		}
		if unlock, err = h.lock(); err != nil {
			unlock = func() {}
			return err
		}
		now, err = h.look(want)
	}
	if err != nil {
		return err
	}
	return h.apply(now, want, tried)
}

func (h Host) lock() (unlock func(), err error) {
	unlock, err = h.Files.Lock(lockWait)
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("another %s node command has worked on this node for %s and has not ended: nothing was "+
			"changed; run this one again when that one has ended", contract.Name, lockWait)
	}
	return unlock, err
}

func (h Host) apply(now state, want Version, tried error) error {
	if err := h.clear(scrap); err != nil {
		return err
	}
	plan := now.plan(want)
	if now.interrupted {
		h.Say("continuing after an interruption")
		if err := h.Files.Sync(folder); err != nil { // before anything else is changed the journal has to last
			return err
		}
	}
	if tried != nil {
		if now.interrupted {
			return h.undo(now, plan, tried)
		}
		return &RolledBackError{Cause: tried}
	}
	if plan.IsEmpty() {
		return h.removeEmpty(folder)
	}
	if !now.interrupted {
		if err := h.ready(want, plan); err != nil {
			return err
		}
		if err := h.keep(now); err != nil {
			return joined([]error{err, h.forget(), h.removeEmpty(folder)})
		}
	} else if err := h.check(want, plan); err != nil {
		return h.undo(now, plan, err)
	}
	if err := h.bring(now, plan, want.files, plan.reads, false); err != nil {
		return h.undo(now, plan, err)
	}
	if err := h.check(want, plan); err != nil {
		return h.undo(now, plan, err)
	}
	// What failed when the node was prepared has been done now.
	return joined([]error{h.removeFile(contract.PathProblems), h.forget(), h.removeEmpty(folder)})
}

// removeFile removes a file, if there is one.
func (h Host) removeFile(name string) error {
	if err := h.Files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return h.sync(path.Dir(name))
}

// sync makes the names in a folder durable, if there is one: a run that did not end may have changed them.
func (h Host) sync(name string) error {
	if err := h.Files.Sync(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Plan returns what Apply would do, and writes nothing.
func (h Host) Plan(want Version) (Plan, error) {
	unlock, err := h.lock()
	if err != nil {
		return Plan{}, err
	}
	defer unlock()
	now, err := h.look(want)
	return now.plan(want), err
}

// ready asks for all that can be known before anything is written.
func (h Host) ready(want Version, plan Plan) error {
	if len(plan.Services) > 0 {
		if err := h.Services.Ready(); err != nil {
			return err
		}
		h.Say("asking whether " + strings.Join(plan.Services, " and ") + " can be restarted")
		if err := h.Services.Healthy(want, plan.Services, plan.reads); err != nil {
			return err
		}
	}
	needed := uint64(spare)
	for _, f := range want.files {
		needed += 2 * uint64(len(f.Content)) //nolint:mnd // the file and the previous one
	}
	switch room, err := h.Files.Room(disk); {
	case err != nil:
		return err
	case room < needed:
		return fmt.Errorf("the disk of %s on this node is full: %d bytes have to be free", disk, needed)
	}
	return h.check(want, plan)
}

// check asks the endpoints if something changes that they depend on.
func (h Host) check(want Version, plan Plan) error {
	if len(want.endpoints) == 0 || len(want.files) == 0 || !plan.Trust && !plan.environment && len(plan.Services) == 0 {
		return nil
	}
	h.Say("asking the readiness endpoints with the new values")
	return h.Services.Check(want)
}

// bring gives the node the files of a target, and no others of the product, and makes services use them: all that is
// possible if whatever is set, and nothing more after a failure otherwise. reads are the services that read the
// variables.
func (h Host) bring(now state, plan Plan, target map[string]File, reads []string, whatever bool) error {
	var failed []error
	do := func(change func(string) error, name string) {
		if whatever || joined(failed) == nil {
			failed = append(failed, change(name))
		}
	}
	take := func(name string) error { return h.take(name, whatever || now.interrupted) }
	paths := patch.ManagedPaths()
	for _, name := range paths {
		if f, wanted := target[name]; wanted {
			do(func(name string) error { return h.place(name, f) }, name)
		}
	}
	for _, name := range slices.Backward(paths) {
		if _, wanted := target[name]; !wanted {
			do(take, name)
		}
	}
	_, variables := target[contract.PathProxyEnv]
	if !variables || len(reads) == 0 && now.addsOwn {
		do(take, contract.PathNodeEnv)
	}
	return joined(append(failed, h.inForce(plan, variables && len(reads) > 0, whatever, joined(failed))))
}

// inForce makes services use the files that there are.
func (h Host) inForce(plan Plan, own, whatever bool, before error) error {
	if before != nil && !whatever {
		return nil
	}
	var failed []error
	if plan.Trust {
		h.Say("installing the certificates of " + contract.PathTrustedCA)
		failed = append(failed, h.Services.Trust())
	}
	if own && plan.environment && (whatever || joined(failed) == nil) {
		h.Say("adding the node's own addresses to NO_PROXY in " + contract.PathNodeEnv)
		failed = append(failed, h.Services.OwnAddresses())
	}
	if len(plan.Services) > 0 && (whatever || joined(failed) == nil) {
		h.Say("restarting " + strings.Join(plan.Services, " and "))
		failed = append(failed, h.Services.Restart(plan.Services))
	}
	return joined(failed)
}

// mkdir makes a folder, unless there is one.
func (h Host) mkdir(name string, mode fs.FileMode) error {
	if err := h.Files.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return h.Files.Sync(path.Dir(name))
}

// removeEmpty removes a folder if it is empty.
func (h Host) removeEmpty(name string) error {
	names, err := h.Files.List(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := h.Files.Remove(name); err != nil {
		return err
	}
	return h.Files.Sync(path.Dir(name))
}

func (h Host) rename(from, to string) error {
	if err := h.Files.Rename(from, to); err != nil {
		return err
	}
	return h.Files.Sync(path.Dir(to))
}

// place gives a path of the product its file, whole and durable. A file of somebody else stays, and is an error.
func (h Host) place(name string, want File) error {
	current, kind, err := h.at(name)
	switch {
	case err != nil:
		return err
	case kind == foreign:
		return foreignError(name)
	case kind == ours && current.isLike(want.Content, want.Mode):
		return h.sync(path.Dir(name))
	}
	if err := h.mkdir(path.Dir(name), modeFolder); err != nil {
		return err
	}
	temporary := path.Join(journal, inJournal(name)+".new")
	if err := h.Files.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := h.Files.Write(temporary, want.Content, want.Mode); err != nil {
		return err
	}
	return h.rename(temporary, name)
}

// take removes a file of the product, and the folder of a drop-in that is empty then. A file of somebody else stays. An
// apply that did not end may have left the folder only, or the folder may have been made for a file that was not.
func (h Host) take(name string, folderOnly bool) error {
	_, kind, err := h.at(name)
	switch {
	case errors.Is(err, ErrNotRegular), err == nil && (kind == foreign || kind == nothing && !folderOnly):
		return nil
	case err != nil:
		return err
	}
	within := path.Dir(name)
	if err := h.removeFile(name); err != nil || within == folder {
		return err
	}
	if err := h.removeEmpty(within); err != nil {
		return err
	}
	return h.sync(path.Dir(within))
}

// isLike reports whether a file needs no replacement.
func (f File) isLike(content Content, mode fs.FileMode) bool {
	return f.Owned && f.Mode == mode && bytes.Equal(f.Content, content)
}

// What is at a path of the product.
const (
	nothing = iota
	ours
	foreign
)

// at returns what is at a path. What is not a regular file is an error of ErrNotRegular.
func (h Host) at(name string) (f File, kind int, err error) {
	f, err = h.Files.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, nothing, nil
	case err != nil:
		return File{}, nothing, err
	case !patch.HasMark(string(f.Content)):
		return f, foreign, nil
	}
	return f, ours, nil
}
