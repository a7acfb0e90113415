// Package systemd writes the drop-ins that give a service its proxy and the
// file of variables that they name, and knows where systemd looks for
// drop-ins.
package systemd

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// DropInName is the file name of every drop-in of the product. systemd applies
// drop-ins in the order of their names whatever their folder, so this one
// comes after kubeadm's 10-kubeadm.conf.
const DropInName = "http-proxy.conf"

// DropInPath returns the path of the drop-in of a service, for example of
// "containerd": /etc/systemd/system/containerd.service.d/http-proxy.conf.
// The name is that of the unit without ".service".
func DropInPath(unitName string) string {
	return path.Join("/etc/systemd/system", unitName+".service.d", DropInName)
}

// DropInOf returns the file name of a drop-in of the service, "" for any
// other path. systemd reads drop-ins in the order of their names, and only
// one of those that share a name: one in the folder of the unit hides those
// in a folder for several units, and among equals /etc hides /run, which
// hides /usr (systemd.unit(5)). A file named DropInName therefore either is
// ours, or is hidden by ours, or hides ours.
//
// filePath is cleaned first; a relative path is never a drop-in. The folders
// are those of a system manager in systemd.unit(5), and in each of them
// NAME.service.d, PREFIX-.service.d for every dash in the name, and
// service.d. Links are not followed and other names of the unit (Alias=) are
// not known here.
func DropInOf(filePath, unitName string) string {
	if !strings.Contains(filePath, "service.d/") {
		return ""
	}
	folder, file := path.Split(path.Clean(filePath))
	parent, folderName := path.Split(strings.TrimSuffix(folder, "/"))
	if !strings.HasSuffix(file, ".conf") || !slices.Contains(unitFolders(), strings.TrimSuffix(parent, "/")) ||
		!isDropInFolder(unitName, folderName) {
		return ""
	}
	return file
}

// Overrides returns how a drop-in changes the variables that EnvironmentFile= of ours sets, in words that follow "it".
// A file for which isOurs is true has the same values; any other may have variables. Environment= and PassEnvironment=
// change none of them, and UnsetEnvironment= does wherever it stands (systemd.exec(5)), so that of a drop-in that is
// not read later only that counts. The error is that content is not a unit file.
func Overrides(content string, later bool, isVariable, isOurs func(string) bool) ([]string, error) {
	options, err := unit.DeserializeOptions(strings.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading a drop-in: %w", err)
	}
	var found []string
	for _, o := range options {
		if o.Section != "Service" {
			continue
		}
		switch file := strings.TrimPrefix(o.Value, "-"); {
		case o.Name == "UnsetEnvironment":
			for _, word := range strings.FieldsFunc(o.Value, isQuoteOrSpace) {
				if name, _, _ := strings.Cut(word, "="); isVariable(name) {
					found = append(found, "unsets "+name)
				}
			}
		case o.Name != "EnvironmentFile" || !later:
		case file == "":
			found = append(found, "resets EnvironmentFile= after "+DropInName)
		case !isOurs(file):
			found = append(found, "reads variables from "+file+" after "+DropInName)
		}
	}
	return found, nil
}

// unitFolders returns the folders with units of a system manager, of two files with the same name that in the earlier
// one counts (systemd.unit(5)).
func unitFolders() []string {
	return []string{
		"/etc/systemd/system.control",
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
		"/run/systemd/generator.late",
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

// EnvironmentFileDropIn returns a drop-in that gives a service the variables of environment files: of two files with
// the same variable systemd takes the later. A service starts without a file that is missing.
//
// startPre, unless empty, is a command that runs before each start. It may write the files, because systemd reads them
// anew for the service itself (systemd.exec(5), EnvironmentFile=). The service starts if the command fails, but not if
// it takes longer than TimeoutStartSec=.
//
// Nothing is escaped: paths are absolute, without a space and without % * ? and [, which have a meaning there.
func EnvironmentFileDropIn(startPre string, files ...string) string {
	var options []*unit.UnitOption
	for _, p := range files {
		options = append(options, unit.NewUnitOption("Service", "EnvironmentFile", "-"+p))
	}
	if startPre != "" {
		options = append(options, unit.NewUnitOption("Service", "ExecStartPre", "-"+startPre))
	}
	return dropIn(options...)
}

// EnvironmentDropIn returns a drop-in that gives a service the variables, in
// the order given, one Environment="NAME=VALUE" line each. A backslash
// precedes every \ and ", and every % is doubled, which are the characters
// with a meaning there: systemd.syntax(7) on quoting, systemd.unit(5) on
// specifiers. All others, $ included, systemd takes as they are.
//
// Whatever its mode, systemd shows such a drop-in to every local user
// (systemctl show), so that it must not hold a credential; use
// EnvironmentFileDropIn for those. The error is that of ValidateVars, or
// says that there is no variable.
func EnvironmentDropIn(vars []Var) ([]byte, error) {
	const operation = "rendering drop-in with variables"
	if len(vars) == 0 {
		return nil, errors.New(operation + ": no variables")
	}
	if err := ValidateVars(vars); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`)
	options := make([]*unit.UnitOption, 0, len(vars))
	for _, v := range vars {
		options = append(options, unit.NewUnitOption("Service", "Environment", `"`+v.Name+"="+escape.Replace(v.Value)+`"`))
	}
	return []byte(dropIn(options...)), nil
}

// dropIn serializes the options of one section below the line that says whose
// file this is.
func dropIn(options ...*unit.UnitOption) string {
	text, _ := io.ReadAll(unit.Serialize(options)) // a buffer
	return EnvironmentFileHeader + "\n" + string(text)
}
