package node

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// undo restores the previous files.
func (h Host) undo(now state, plan Plan, cause error) error {
	h.Say("restoring the previous files")
	left := h.bring(now, plan, now.before, now.readBefore, true)
	if left == nil {
		left = joined([]error{h.forget(), h.removeEmpty(folder)})
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
	if err := h.mkdir(folder, modeFolder); err != nil {
		return err
	}
	if err := h.Files.Mkdir(scrap, modePrivate); err != nil {
		return err
	}
	for _, name := range append(patch.ManagedPaths(), contract.PathNodeEnv) {
		f, had := now.before[name]
		end := ""
		if !had {
			end = absent
		}
		if err := h.Files.Write(path.Join(scrap, inJournal(name)+end), f.Content, 0o600); err != nil {
			return err
		}
	}
	if err := h.Files.Sync(scrap); err != nil {
		return err
	}
	return h.rename(scrap, journal)
}

// inJournal is the name of a file in the journal.
func inJournal(name string) string {
	if path.Dir(name) == folder {
		return path.Base(name)
	}
	return path.Base(path.Dir(name)) + "-" + path.Base(name)
}

// forget removes the journal, if there is one, with what was in it.
func (h Host) forget() error {
	err := h.rename(journal, scrap)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return h.clear(scrap)
}

// clear removes a folder of the product with its content.
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
