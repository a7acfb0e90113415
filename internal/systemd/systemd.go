// Package systemd writes the drop-ins that give a service its proxy, and
// knows where systemd looks for drop-ins.
package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// dropInName is the file name of every drop-in of ours. systemd applies
// drop-ins in the order of their names whatever their folder, so this one
// comes after kubeadm's 10-kubeadm.conf.
const dropInName = "http-proxy.conf"

// DropInPath returns the path of the drop-in of a service, for example of
// "containerd": /etc/systemd/system/containerd.service.d/http-proxy.conf.
// The name is that of the unit without ".service".
func DropInPath(unitName string) string {
	return path.Join("/etc/systemd/system", unitName+".service.d", dropInName)
}

// IsDropInOf reports whether a file at filePath is a drop-in of the service
// and has the same name as ours, http-proxy.conf. systemd reads only one of
// the files that share a name: one in the folder of the unit hides those in a
// folder for several units, and among equals /etc hides /run, which hides
// /usr (systemd.unit(5)). Such a file therefore either is ours, or is hidden
// by ours, or hides ours.
//
// filePath is cleaned first; a relative path is never a drop-in. The folders
// are those of a system manager in systemd.unit(5), and in each of them
// NAME.service.d, PREFIX-.service.d for every dash in the name, and
// service.d. Links are not followed and other names of the unit (Alias=) are
// not known here.
func IsDropInOf(filePath, unitName string) bool {
	if !strings.Contains(filePath, dropInName) { // almost all
		return false
	}
	folder, file := path.Split(path.Clean(filePath))
	if file != dropInName {
		return false
	}
	parent, folderName := path.Split(strings.TrimSuffix(folder, "/"))
	return isUnitFolder(strings.TrimSuffix(parent, "/")) && isDropInFolder(unitName, folderName)
}

func isUnitFolder(folder string) bool {
	switch folder {
	case "/etc/systemd/system.control",
		"/run/systemd/system.control",
		"/run/systemd/transient",
		"/run/systemd/generator.early",
		"/etc/systemd/system",
		"/etc/systemd/system.attached",
		"/run/systemd/system",
		"/run/systemd/system.attached",
		"/run/systemd/generator",
		"/usr/local/lib/systemd/system",
		"/usr/lib/systemd/system",
		"/lib/systemd/system",
		"/run/systemd/generator.late":
		return true
	default:
		return false
	}
}

// isDropInFolder reports whether a folder of this name holds drop-ins of the service: service.d, those of the prefixes
// of its name that end with a dash, and its own.
func isDropInFolder(unitName, folderName string) bool {
	stem, found := strings.CutSuffix(folderName, ".service.d")
	if !found {
		return folderName == "service.d"
	}
	isPrefix := strings.HasSuffix(stem, "-") && strings.HasPrefix(unitName, stem)
	return stem == unitName || isPrefix
}

// EnvironmentFileDropIn returns a drop-in that gives a service the variables
// of the environment file at filePath. systemd does not start the service if
// the file is missing.
//
// It is an error if filePath is not an absolute clean path of ASCII letters, digits and the characters / . _ and -: a
// space ends the path, and % * ? [ have a meaning in EnvironmentFile= (systemd.exec(5)).
func EnvironmentFileDropIn(filePath string) ([]byte, error) {
	if err := checkPath(filePath); err != nil {
		return nil, fmt.Errorf("rendering drop-in with environment file %q: %w", filePath, err)
	}
	return dropIn(unit.NewUnitOption("Service", "EnvironmentFile", filePath))
}

// EnvironmentDropIn returns a drop-in that gives a service the variables, in
// the order given, one Environment="NAME=VALUE" line each. A backslash
// precedes every \ and ", and every % is doubled, which are the characters
// with a meaning there: systemd.syntax(7) on quoting, systemd.unit(5) on
// specifiers. All others, $ included, systemd takes as they are.
//
// Whatever its mode, systemd shows such a drop-in to every local user
// (systemctl show), so that it must not hold a credential; use
// EnvironmentFileDropIn for those. The error is that of envfile.Validate, or
// says that there is no variable.
func EnvironmentDropIn(vars []envfile.Var) ([]byte, error) {
	const operation = "rendering drop-in with variables"
	if len(vars) == 0 {
		return nil, errors.New(operation + ": no variables")
	}
	if err := envfile.Validate(vars); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`)
	options := make([]*unit.UnitOption, 0, len(vars))
	for _, v := range vars {
		options = append(options, unit.NewUnitOption("Service", "Environment", `"`+v.Name+"="+escape.Replace(v.Value)+`"`))
	}
	return dropIn(options...)
}

// dropIn serializes the options of one section below the line that says whose
// file this is.
func dropIn(options ...*unit.UnitOption) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(envfile.Header + "\n")
	if _, err := io.Copy(&b, unit.Serialize(options)); err != nil {
		return nil, fmt.Errorf("serializing drop-in: %w", err)
	}
	return b.Bytes(), nil
}

func checkPath(filePath string) error {
	switch {
	case !path.IsAbs(filePath):
		return errors.New("not absolute")
	case path.Clean(filePath) != filePath:
		return errors.New("not clean")
	case filePath == "/":
		return errors.New("not a file")
	}
	if i := strings.IndexFunc(filePath, func(r rune) bool {
		return !strings.ContainsRune("/._-", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}); i >= 0 {
		return fmt.Errorf("character other than a letter, digit, slash, dot, underscore or dash at byte %d", i)
	}
	return nil
}
