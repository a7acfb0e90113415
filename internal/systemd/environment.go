package systemd

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// UnitFile is the file of a unit, or a drop-in of it.
type UnitFile struct{ Path, Content string }

// Environment is what decides about the variables of a service beside its Environment= lines: systemd reads Files in
// order, of two with the same variable it takes the later, and then takes Unset away (systemd.exec(5)).
type Environment struct {
	Files, Unset []Setting
	// Reset is the unit file that made systemd forget all files that were named before it, or "".
	Reset string
}

// Setting is a value and the unit file that has it: the path of a file of variables, or a variable to take away.
type Setting struct{ Value, From string }

// ReadEnvironment reads the files of a unit in the order in which systemd does, the unit first. What systemd does not
// understand is ignored, as systemd does.
func ReadEnvironment(files []UnitFile) Environment {
	var e Environment
	for _, f := range files {
		options, err := unit.DeserializeOptions(strings.NewReader(f.Content))
		if err != nil {
			continue
		}
		for _, o := range options {
			switch {
			case o.Section != "Service":
			case o.Name == "EnvironmentFile" && o.Value == "":
				e.Files, e.Reset = nil, f.Path
			case o.Name == "EnvironmentFile":
				e.Files = append(e.Files, Setting{strings.TrimPrefix(o.Value, "-"), f.Path})
			case o.Name == "UnsetEnvironment" && o.Value == "":
				e.Unset = nil
			case o.Name == "UnsetEnvironment":
				for word := range strings.FieldsFuncSeq(o.Value, isQuoteOrSpace) {
					e.Unset = append(e.Unset, Setting{word, f.Path})
				}
			}
		}
	}
	return e
}

func isQuoteOrSpace(r rune) bool { return strings.ContainsRune(" \t\n\"'", r) }

// Loaded returns the environment that systemd has loaded, given the values that it has. Where they come from is what e
// says about them; a value that no unit file has comes from "".
func (e Environment) Loaded(files, unset []string) Environment {
	settings := func(values []string, known []Setting) (found []Setting) {
		for _, value := range values {
			from := ""
			for _, s := range known {
				if s.Value == value {
					from = s.From
				}
			}
			found = append(found, Setting{value, from})
		}
		return found
	}
	return Environment{Files: settings(files, e.Files), Unset: settings(unset, e.Unset), Reset: e.Reset}
}

// Unsets returns the setting that takes a variable away, if there is one. A value with an equals sign takes a variable
// with exactly that value away; value is the variable's.
func (e Environment) Unsets(name, value string) (Setting, bool) {
	i := slices.IndexFunc(e.Unset, func(s Setting) bool { return s.Value == name || s.Value == name+"="+value })
	if i < 0 {
		return Setting{}, false
	}
	return e.Unset[i], true
}

// FindUnitFiles returns the file of a service, if there is one, and its drop-ins, in the order in which systemd reads
// them. list returns the names in a folder, none if there is no folder. Other names of the unit (Alias=) are not known
// here.
func FindUnitFiles(unitName string, list func(folder string) []string) []string {
	var found []string
	for _, folder := range unitFolders() {
		if name := unitName + ".service"; slices.Contains(list(folder), name) {
			found = append(found, path.Join(folder, name))
			break
		}
	}
	seen := map[string]string{}
	for _, kind := range []string{unitName + ".service.d", "service.d"} {
		for _, folder := range unitFolders() {
			for _, name := range list(path.Join(folder, kind)) {
				if _, hidden := seen[name]; !hidden && strings.HasSuffix(name, ".conf") {
					seen[name] = path.Join(folder, kind, name)
				}
			}
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		found = append(found, seen[name])
	}
	return found
}

// LookUp returns the value of a variable in a file of variables, which anybody may have written. Of a value with
// several lines it reads the first.
func LookUp(content, name string) (value string, found bool) {
	for line := range strings.Lines(content) {
		key, text, assigns := strings.Cut(strings.TrimLeft(line, " \t"), "=")
		if !assigns || strings.TrimRight(key, " \t") != name {
			continue
		}
		value, found = unquoted(strings.TrimSpace(text)), true
	}
	return value, found
}

// unquoted returns a value without its quotes and backslashes.
func unquoted(text string) string {
	if len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' {
		return text[1 : len(text)-1]
	}
	escapes := ""
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text, escapes = text[1:len(text)-1], "\\\"$`" // the others keep their backslash
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (escapes == "" || strings.IndexByte(escapes, text[i+1]) >= 0) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
