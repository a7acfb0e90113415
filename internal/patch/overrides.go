package patch

import (
	"compress/gzip"
	"encoding/base64"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

const (
	// CodeOverridden is what gives commands or services other variables than the product.
	CodeOverridden finding.Code = "overridden"
	// CodeUnread notes a drop-in that may, whose content is not in the spec or cannot be decoded.
	CodeUnread finding.Code = "unread-drop-in"
)

// overrides returns warnings and notes about what gives commands and services other variables than recipe does,
// wherever a spec has it: in commands, in files, and in what Ignition writes.
func overrides(spec Spec, recipe Recipe) []finding.Finding {
	units := slices.DeleteFunc(UnitNames(), func(unit string) bool {
		return !hasFileAt(recipe.Files, systemd.DropInPath(unit))
	})
	inFile := func(f File) []finding.Finding { return inFile(f, units) }
	inCommand := func(command string) []finding.Finding { return inFile(File{Content: command}) }
	found := slices.Concat(inList(ListPre, spec.PreKubeadmCommands, inCommand),
		inList(ListPost, spec.PostKubeadmCommands, inCommand), inList(ListFiles, spec.Files, inFile))
	for _, f := range spec.Ignition {
		if IsManagedPath(f.Path) { // in Files a conflict
			f = File{Content: f.Path}
		}
		for _, one := range inFile(f) {
			one.Place = finding.Field("ignition", "containerLinuxConfig", "additionalConfig")
			found = append(found, one)
		}
	}
	return found
}

// inList returns the findings about the user's entries of a list, with their places.
func inList[T entry](name List, list []T, in func(T) []finding.Finding) (found []finding.Finding) {
	for i, e := range list {
		if isManaged(e) {
			continue
		}
		for _, one := range in(e) {
			one.Place = finding.Field(string(name)).Index(i - countManaged(list[:i]))
			found = append(found, one)
		}
	}
	return found
}

const (
	// OtherValues says what comes of what overrides the proxy.
	OtherValues = "services or commands may have other values than those of the proxy Secret"
	// LeaveAlone is the advice about a text that names what decides about variables.
	LeaveAlone = "leave the files of " + contract.Name + " alone, and give a drop-in a name before http-proxy.conf"

	dropInAdvice = "leave out UnsetEnvironment=, and EnvironmentFile= unless the name comes before http-proxy.conf"
)

// inFile returns the findings about a file of the user, or about a command, which has no path.
func inFile(f File, units []string) (found []finding.Finding) {
	add := func(code finding.Code, advice string, does ...string) {
		message := strings.TrimSpace(f.Path + " " + strings.Join(does, ", ") + ": " + OtherValues)
		found = append(found, finding.Finding{Code: code, Message: message, Advice: advice})
	}
	text, known := f.text()
	name, _, sets := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "export "), "=")
	if name = strings.TrimSpace(name); sets && IsProxyVariable(name) && f.Path == "" {
		add(CodeOverridden, "remove the command", "sets "+name+" itself")
	}
	if names := NamesIn(text, units); names != nil {
		add(CodeOverridden, LeaveAlone, "names "+strings.Join(names, ", "))
	}
	at := slices.IndexFunc(units, func(unit string) bool { return systemd.DropInOf(f.Path, unit) != "" })
	if at < 0 {
		return found
	}
	later := systemd.DropInOf(f.Path, units[at]) > systemd.DropInName
	does, err := systemd.Overrides(text, later, IsProxyVariable, isOwnPath)
	switch {
	case later && (!known || err != nil):
		add(CodeUnread, dropInAdvice, "comes after http-proxy.conf and cannot be read here")
	case len(does) > 0:
		add(CodeOverridden, dropInAdvice, does...)
	}
	return found
}

var (
	ownFolder = path.Dir(contract.PathProxyEnv) //nolint:gochecknoglobals // a constant
	// named is a file of the product, or a folder of drop-ins with or without the name of a file.
	named = regexp.MustCompile(ownFolder + `\b(?:/[\w.-]+)*|[^\s/'"=,;|&()<>]*service\.d\b(?:/[\w.@*?${}[\]-]*)?`)
	// unclear has a part that only a shell knows.
	unclear = regexp.MustCompile(`[^\w.@-]|^\.|^$`)
	// reading is what stands before a file that is only read, or a folder that is made.
	reading = regexp.MustCompile(`^\s*(?:#|(?:\.|source)\s)[^>]*$|(?:\bsh\s+["']?|EnvironmentFile=-?|env-file[= ])$|` +
		`(?:^|[\s"'])(?:mkdir|install -d|cat|ls|stat|grep|test|\[+|echo|chmod|chown)\s[^>]*$`)
	// variables is in a drop-in that is about them.
	variables = regexp.MustCompile(`(?i)proxy|EnvironmentFile|UnsetEnvironment`)
)

// Limits of what is read, in bytes, and of what a finding names.
const maxText, maxName, maxNames = 64 << 10, 253, 8

func isOwnPath(p string) bool { return path.Dir(clean(p)) == ownFolder }

// NamesIn returns what a text, such as a script, names of the product's files and of drop-ins of units that systemd
// reads after ours or in their place; not where it only reads them. No name holds a secret.
func NamesIn(text string, units []string) (names []string) {
	if !strings.Contains(text, "service.d") && !strings.Contains(text, ownFolder) ||
		strings.Contains(text, "[Service]") && !variables.MatchString(text) {
		return nil
	}
	text = strings.ReplaceAll(text, "\\\n", " ")
	for _, at := range named.FindAllStringIndex(text, -1) {
		name, before := finding.Cut(text[at[0]:at[1]], maxName), text[max(0, at[0]-maxName):at[0]]
		before = before[strings.LastIndexAny(before, "\n;&|(`")+1:]
		if !reading.MatchString(before) && !slices.Contains(names, name) && decides(name, units) && len(names) < maxNames {
			names = append(names, name)
		}
	}
	return names
}

// decides reports whether a file that is named decides about variables. What only a shell knows may be any name.
func decides(named string, units []string) bool {
	folder, name, _ := strings.Cut(named, "/")
	if unclear.MatchString(name) {
		name = "zz.conf"
	}
	return strings.HasPrefix(named, ownFolder) || slices.ContainsFunc(units, func(unit string) bool {
		in := folder
		if unclear.MatchString(folder) {
			in = unit + ".service.d"
		}
		return systemd.DropInOf(path.Join("/etc/systemd/system", in, name), unit) >= systemd.DropInName
	})
}

// ReadsContent reports whether decisions read the content of f: it may be a managed file or a drop-in of a service, or
// names one. A caller may omit all other contents from a Spec.
func ReadsContent(f File) bool {
	isDropIn := func(unit string) bool { return systemd.DropInOf(f.Path, unit) != "" }
	text, _ := f.text()
	return IsManagedPath(f.Path) || slices.ContainsFunc(UnitNames(), isDropIn) || NamesIn(text, UnitNames()) != nil
}

// text returns the first maxText bytes of the content as a node has it, and whether it is known.
func (f File) text() (text string, known bool) {
	if f.Encoding == "" {
		return f.Content[:min(len(f.Content), maxText)], f.ContentFrom == SecretKey{}
	}
	var decoded io.Reader = strings.NewReader(f.Content)
	if strings.HasSuffix(f.Encoding, "base64") {
		decoded = base64.NewDecoder(base64.StdEncoding, decoded)
	}
	if strings.HasPrefix(f.Encoding, "gzip") {
		unzipped, err := gzip.NewReader(decoded)
		if err != nil {
			return "", false
		}
		decoded = unzipped
	}
	content, err := io.ReadAll(io.LimitReader(decoded, maxText))
	return string(content), err == nil && f.ContentFrom == SecretKey{}
}

// IgnitionFiles returns what decisions read of storage.files and systemd.units of a Container Linux Config.
func IgnitionFiles(storage, units any) (files []File) {
	for _, file := range listOf(storage) {
		contents := mapOf(mapOf(file)["contents"])
		f := File{Path: stringOf(mapOf(file)["path"]), Content: stringOf(contents["inline"])}
		if contents["remote"] != nil {
			f.ContentFrom.Key = "remote"
		}
		files = append(files, f)
	}
	for _, unit := range listOf(units) {
		folder := path.Join("/etc/systemd/system", stringOf(mapOf(unit)["name"])+".d")
		files = append(files, File{Content: stringOf(mapOf(unit)["contents"])})
		for _, dropIn := range listOf(mapOf(unit)["dropins"]) {
			name := stringOf(mapOf(dropIn)["name"])
			files = append(files, File{Path: path.Join(folder, name), Content: stringOf(mapOf(dropIn)["contents"])})
		}
	}
	return slices.DeleteFunc(files, func(f File) bool { return !ReadsContent(f) })
}
