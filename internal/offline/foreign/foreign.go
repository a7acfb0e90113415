// Package foreign reads the proxy settings of other systems and makes the data of a proxy Secret of them. It is pure.
//
// Every input becomes leaves, each with a path and a text (read.go). A table says what a path means (forms.go). Errors
// and notes give lines and keys. They show no value, and no key that may be a credential in place of a name.
package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// Result has the settings that were read.
type Result struct {
	// Data is the data of a proxy Secret. It is not validated, and holds the credentials of the proxy.
	Data map[string]string
	// Cluster and Namespace are those of the Cluster that the text is about, "" if it names none.
	Cluster, Namespace string
	// Notes name what of the text is not in Data, or changed, and why.
	Notes []string
}

// reader has the values read so far by meaning, the bytes left to read, and how many values a proxy Secret has taken.
type reader struct {
	rows        []row
	values      map[string][]value
	notes       []string
	left, taken int
}

type value struct{ text, place string }

var (
	errNone = errors.New("no proxy settings of a known form (docs/reference.md); give the Secret or file that has them")
	// hostPort is a URL without its scheme, packedName the name of a Secret or ConfigMap that begins with its Cluster's.
	hostPort   = regexp.MustCompile(`^[^\s/{}<>$]+:[0-9]+$`)
	packedName = regexp.MustCompile(`^(.*)-(config-values|cluster-values|systemd-proxy)$`)
	// about is in the names of settings of a proxy and of certificates, in lower case and with a dash before the words.
	about = regexp.MustCompile(`prox(y|ies)|(^|[^a-z])(root|trusted|ssl|tls)?(ca|cert|certificate|pac|wpad)` +
		`(bundle|cert|data|dir|file|path)*s?([^a-z]|$)`)
	camelCase = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	plainKey  = regexp.MustCompile(`^[A-Za-z._-]+$`)
)

// Read reads a text of at most 16 MiB in any of the known forms. URLs and names must be the same in all places. Lists
// and certificates are joined.
func Read(text []byte) (Result, error) {
	r, texts := reader{rows: rows(), values: map[string][]value{}, left: maxSize}, map[string]string{}
	if err := r.text("", string(text)); err != nil {
		return Result{}, err
	}
	for _, meaning := range slices.Sorted(maps.Keys(r.values)) {
		var all []string
		first := r.values[meaning][0]
		for _, v := range r.values[meaning] {
			if v.text != first.text && slices.Contains(strings.Fields("httpProxy httpsProxy cluster namespace"), meaning) {
				return Result{}, fmt.Errorf("%s and %s have different values; keep one", first.place, v.place)
			}
			all = append(all, v.text)
		}
		texts[meaning] = strings.Join(slices.Compact(all), "\n")
	}
	result := Result{Data: map[string]string{}, Cluster: texts["cluster"], Namespace: texts["namespace"], Notes: r.notes}
	result.Data[contract.KeyTrustedCA] = strings.TrimLeft(texts[contract.KeyTrustedCA]+"\n", "\n")
	endpoints := slices.Collect(noproxy.Items(texts[contract.KeyReadinessEndpoints]))
	result.Data[contract.KeyReadinessEndpoints] = strings.Join(endpoints, ",")
	result.setURLs(texts)
	result.setNoProxy(texts[contract.KeyNoProxy])
	if maps.DeleteFunc(result.Data, func(_, text string) bool { return text == "" }); len(result.Data) == 0 {
		return Result{}, errNone
	}
	return result, nil
}

// collect takes the values of one document. The key enabled comes last: it matters where there are others.
func (r *reader) collect(kind string, leaves []leaf) error {
	inUse, beside := map[string]bool{}, kind == "" || r.taken > 0 && dataKind.MatchString(kind)
	for i := range 2 * len(leaves) {
		l, last := leaves[i%len(leaves)], i >= len(leaves)
		w, text := r.find(kind, l.path), strings.TrimSpace(l.text)
		if w.meaning == "" || text == "" && (l.problem == "" || l.switches) || last != (w.meaning == "enabled") {
			continue
		}
		if name, value, found := strings.Cut(text, "="); found && strings.EqualFold(name, w.key) {
			text = strings.Trim(value, `"'`) // Google's ConfigMap for containerd has NAME=VALUE at the key NAME
		}
		mapping := fmt.Sprintf("%s %q", w.form, l.path[:len(l.path)-w.depth])
		place := fmt.Sprintf("%s: %s (%s)", l.place, strings.Replace(w.key, "*", "this key", 1), w.form)
		switch name := packedName.FindStringSubmatch(text); {
		case last && !inUse[mapping]:
			continue
		case l.problem != "" && (!l.switches || w.meaning != contract.KeyNoProxy) || w.meaning == "elsewhere":
			return fmt.Errorf("%s %s", place, cmp.Or(l.problem, "names another object: remove it and add its value yourself"))
		case w.meaning == "enabled" && strings.EqualFold(text, "false"):
			return fmt.Errorf("%s is false, which switches the proxy off; change that to read the settings", place)
		case w.meaning == "packed" && name != nil:
			w.meaning, text = "cluster", name[1]
		case w.meaning == contract.KeyTrustedCA:
			text = strings.TrimSpace(decode(text))
		}
		if inUse[mapping] = true; slices.Contains(contract.SecretKeys(), w.meaning) {
			beside, r.taken = true, r.taken+1
		}
		r.values[w.meaning] = append(r.values[w.meaning], value{text, place})
	}
	if beside {
		r.beside(kind, leaves)
	}
	return nil
}

// isAbout reports whether a key is about a proxy or certificates by its words, in any spelling.
func isAbout(key string) bool {
	words := strings.ToLower(camelCase.ReplaceAllString(key, "$1-$2"))
	return about.MatchString(strings.ReplaceAll(words, "kube-proxy", ""))
}

// beside notes the keys of one document that are not read, and are about a proxy or certificates, or stand beside a key
// that is read: named as in a proxy Secret, or in a mapping about these. Mappings more than 4 keys above were leaves.
func (r *reader) beside(kind string, leaves []leaf) {
	id := func(path []string) string { return strings.Join(path, "\x00") }
	state := map[string]int{"metadata": 3, "status": 3} // 1 above a key that is read, 2 right above, 3 read or noted
	for _, l := range leaves {
		for i := len(l.path); i >= 0 && r.find(kind, l.path).meaning != ""; i-- {
			state[id(l.path[:i])] = max(state[id(l.path[:i])], 3-min(2, len(l.path)-i))
		}
	}
	for _, l := range leaves {
		for i := max(0, len(l.path)-4); i < len(l.path) && (l.text != "" || l.problem != "" && !l.switches); i++ {
			key, name, at, above := l.path[i], "this key", id(l.path[:i+1]), state[id(l.path[:i])]
			switch named := isAbout(key); {
			case above == 3:
				state[at] = 3
			case state[at] == 0 && (named || above == 2 && (slices.Contains(contract.SecretKeys(), key) ||
				i > 0 && key != "enabled" && isAbout(l.path[i-1]))):
				if named && plainKey.MatchString(key) || slices.Contains(contract.SecretKeys(), key) {
					name = key
				}
				state[at] = 3
				r.notes = append(r.notes, fmt.Sprintf("%s: %s is not read; add to the Secret what nodes need of it", l.place, name))
			}
		}
	}
}

// find returns the row of a path in a document of a kind, an empty one if there is none.
func (r *reader) find(kind string, path []string) row {
	i := slices.IndexFunc(r.rows, func(w row) bool {
		at := path
		if w.kind == "any" {
			at = path[max(0, len(path)-len(w.path)):]
		}
		return (w.kind == "any" || w.kind == cmp.Or(kind, "none")) &&
			slices.EqualFunc(w.path, at, func(want, key string) bool { return want == "*" || want == key })
	})
	if i < 0 || kind != "" && path[0] == "status" {
		return row{}
	}
	return r.rows[i]
}

// setURLs adds missing schemes. User and password become keys, if these can hold them and all URLs have the same.
func (r *Result) setURLs(texts map[string]string) {
	bare, users := map[string]string{}, map[url.Userinfo]bool{}
	for _, key := range []string{contract.KeyHTTPProxy, contract.KeyHTTPSProxy} {
		text := strings.TrimSuffix(texts[key], "/")
		if hostPort.MatchString(text) {
			text = "http://" + text
			r.Notes = append(r.Notes, key+" has no scheme; http:// is added")
		}
		if u, err := url.Parse(text); err == nil && u.User != nil && strings.Count(text, "@") == 1 {
			users[*u.User] = true
			bare[key] = u.Scheme + "://" + text[strings.Index(text, "@")+1:]
		} else if text != "" {
			users[url.Userinfo{}] = true
		}
		r.Data[key] = text
	}
	for user := range users {
		name := user.Username()
		password, given := user.Password()
		bare[contract.KeyUsername], bare[contract.KeyPassword] = name, password
		if len(users) == 1 && name != "" && !strings.ContainsAny(name, ":\r\n") && given == (password != "") {
			maps.Copy(r.Data, bare)
		}
	}
}

// setNoProxy joins the lists. Entries that every Cluster has anyway are left out.
func (r *Result) setNoProxy(list string) {
	in := noproxy.Input{OmitGroups: []noproxy.Group{noproxy.GroupServices, noproxy.GroupServiceAddresses}}
	composed, err := noproxy.Compose(in)
	var kept []string
	for entry := range noproxy.Items(list) {
		in.User.Text = entry
		with, errWith := noproxy.Compose(in)
		note := "noProxy: " + entry + " is left out, because it is composed anyway"
		if known := err == nil && errWith == nil && with.Value == composed.Value; known && !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		} else if !known && !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
	}
	r.Data[contract.KeyNoProxy] = strings.Join(kept, ",")
}
