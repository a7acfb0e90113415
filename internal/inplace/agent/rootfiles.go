package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// maxFile is how long a file may be, in bytes. A Secret holds at most 1 MiB.
const maxFile = 2 << 20

// Files are node.Files below a folder. No symbolic link is followed, not even one that stays below it: nothing that
// bootstrap writes is one. ReadThroughLinks is the exception.
type Files struct{ root *os.Root }

// Open opens the root of a node.
func Open(folder string) (Files, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return Files{}, fmt.Errorf("opening the root of the node: %w", err)
	}
	return Files{root: root}, nil
}

// plain returns a name below the root and what is there, which may be nothing. Every folder above is a folder.
func (f Files) plain(name string) (string, fs.FileInfo, error) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	for i, c := range name {
		if c != '/' {
			continue
		}
		info, err := f.root.Lstat(name[:i])
		if err != nil {
			return "", nil, err
		}
		if !info.IsDir() {
			return "", nil, fmt.Errorf("/%s: %w", name[:i], node.ErrNotRegular)
		}
	}
	info, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	return name, info, err
}

// open opens what plain has found, and nothing that has taken its place since.
func (f Files) open(name string, found fs.FileInfo) (*os.File, fs.FileInfo, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !os.SameFile(info, found) {
		err = fmt.Errorf("/%s: %w", name, node.ErrNotRegular)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// Read implements node.Files.
func (f Files) Read(name string) (node.File, error) {
	name, found, err := f.plain(name)
	switch {
	case err != nil:
		return node.File{}, err
	case found == nil:
		return node.File{}, fmt.Errorf("/%s: %w", name, fs.ErrNotExist)
	case !found.Mode().IsRegular():
		return node.File{}, fmt.Errorf("/%s: %w", name, node.ErrNotRegular)
	}
	file, info, err := f.open(name, found)
	if err != nil {
		return node.File{}, err
	}
	defer func() { _ = file.Close() }()
	content, err := ReadAll(file)
	if err != nil {
		return node.File{}, err
	}
	return node.File{Content: content, Mode: info.Mode(), Owned: isOwned(info)}, nil
}

// maxLinks is how many symbolic links a path may have, as for Linux.
const maxLinks = 40

// ReadThroughLinks is Read for a file that is not the product's: it follows symbolic links, as programs on the node do.
// Below the root of the node they end: an absolute link begins there, and no link leads above it. The content is for
// reading only: who may write the link decides which file it is.
func (f Files) ReadThroughLinks(name string) (node.File, error) {
	done, rest := "", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir("/" + done)[1:]
			continue
		}
		at := path.Join(done, part)
		target, err := f.root.Readlink(at)
		if err != nil { // not a link, or nothing, as Read will find
			done = at
			continue
		}
		if links++; links > maxLinks {
			return node.File{}, fmt.Errorf("%s: %w", name, syscall.ELOOP)
		}
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return f.Read("/" + done)
}

// ReadAll reads an open file of a size that a Secret can have.
func ReadAll(file *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", file.Name(), maxFile)
	}
	return content, err
}

// isOwned reports whether a file belongs to the user and the group of this process, which is root.
func isOwned(info fs.FileInfo) bool {
	stat, found := info.Sys().(*syscall.Stat_t)
	return found && int(stat.Uid) == os.Geteuid() && int(stat.Gid) == os.Getegid()
}

// List implements node.Files.
func (f Files) List(name string) ([]string, error) {
	folder, err := f.folder(name)
	if err != nil {
		return nil, err
	}
	names, err := folder.Readdirnames(-1)
	return names, errors.Join(err, folder.Close())
}

func (f Files) folder(name string) (*os.File, error) {
	name, found, err := f.plain(name)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fmt.Errorf("/%s: %w", name, fs.ErrNotExist)
	case !found.IsDir():
		return nil, fmt.Errorf("/%s: not a folder", name)
	}
	folder, _, err := f.open(name, found)
	return folder, err
}

// Write implements node.Files.
func (f Files) Write(name string, content node.Content, mode fs.FileMode) (err error) {
	name, _, err = f.plain(name)
	if err != nil {
		return err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Chown(os.Geteuid(), os.Getegid()); err != nil { // a folder may give its group
		return err
	}
	if err := file.Chmod(mode); err != nil { // whatever the umask
		return err
	}
	return file.Sync()
}

// Rename implements node.Files.
func (f Files) Rename(from, to string) error {
	from, _, err := f.plain(from)
	if err != nil {
		return err
	}
	to, _, err = f.plain(to)
	if err != nil {
		return err
	}
	return f.root.Rename(from, to)
}

// Remove implements node.Files.
func (f Files) Remove(name string) error {
	name, _, err := f.plain(name)
	if err != nil {
		return err
	}
	return f.root.Remove(name)
}

// Mkdir implements node.Files.
func (f Files) Mkdir(name string, mode fs.FileMode) error {
	name, _, err := f.plain(name)
	if err != nil {
		return err
	}
	if err := f.root.Mkdir(name, mode); err != nil {
		return err
	}
	return f.root.Chmod(name, mode) // whatever the umask
}

// Room implements node.Files.
func (f Files) Room(name string) (uint64, error) {
	folder, err := f.folder(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = folder.Close() }()
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(folder.Fd()), &disk); err != nil {
		return 0, fmt.Errorf("asking for the room in %s: %w", name, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil //nolint:gosec // a size
}

// Sync implements node.Files.
func (f Files) Sync(name string) error {
	folder, err := f.folder(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// The lock of a node. It is there until the node reboots.
const (
	lockFolder = "/run/" + contract.Name
	lockFile   = lockFolder + "/lock"
	// lockPause is the time between two tries to take it.
	lockPause = 20 * time.Millisecond
)

// Lock implements node.Files. Nobody but root can open the file that is locked, and so hold an apply up.
func (f Files) Lock(wait time.Duration) (unlock func(), err error) {
	if err := f.Mkdir(lockFolder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the folder of the lock: %w", err)
	}
	if _, err := f.private(lockFolder, fs.ModeDir|0o700); err != nil {
		return nil, err
	}
	if err := f.Write(lockFile, nil, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the lock: %w", err)
	}
	found, err := f.private(lockFile, 0o600)
	if err != nil {
		return nil, err
	}
	file, _, err := f.open(strings.TrimPrefix(lockFile, "/"), found)
	if err != nil {
		return nil, err
	}
	timeout := time.After(wait)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", lockFile, err), file.Close())
		}
		select {
		case <-time.After(lockPause):
		case <-timeout:
			return nil, errors.Join(fmt.Errorf("%s: %w", lockFile, node.ErrLocked), file.Close())
		}
	}
}

// private returns what is at a name, which has to be of root and of a mode.
func (f Files) private(name string, mode fs.FileMode) (fs.FileInfo, error) {
	_, found, err := f.plain(name)
	if err != nil {
		return nil, err
	}
	if found == nil || found.Mode() != mode || !isOwned(found) {
		return nil, fmt.Errorf("%s on this node is not a %s of root with mode %o: somebody else has made it; remove it", name,
			map[bool]string{true: "folder", false: "file"}[mode.IsDir()], mode.Perm())
	}
	return found, nil
}
