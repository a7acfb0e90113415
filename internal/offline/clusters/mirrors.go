package clusters

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Mirror is a registry mirror that containerd asks before a registry.
type Mirror struct {
	// File is the index of the hosts.toml file that names it.
	File int
	// Registry is the registry that it mirrors, URL its own address.
	Registry, URL string
}

const (
	// maxHosts is the longest hosts.toml that is read, in bytes. A parser of nested values needs memory for each of them.
	maxHosts = 64 << 10
	// maxMirrors bounds how many mirrors of a bootstrap spec are used.
	maxMirrors = 100
)

// Mirrors returns the registry mirrors in the hosts.toml files of a bootstrap spec. It skips a file whose content is
// encoded or in a Secret, and one that is not TOML.
func Mirrors(files []patch.File) (mirrors []Mirror) {
	for i, f := range files {
		isHosts, _ := path.Match("/etc/containerd/certs.d/*/hosts.toml", f.Path)
		if !isHosts || f.Other || len(f.Content) > maxHosts {
			continue
		}
		var hosts struct {
			Host map[string]any `toml:"host"`
		}
		if err := toml.Unmarshal([]byte(f.Content), &hosts); err != nil {
			continue
		}
		for _, address := range slices.Sorted(maps.Keys(hosts.Host)) {
			if !strings.HasPrefix(address, "http") { // as containerd completes it
				address = "https://" + address
			}
			mirrors = append(mirrors, Mirror{File: i, Registry: path.Base(path.Dir(f.Path)), URL: address})
		}
	}
	return mirrors[:min(len(mirrors), maxMirrors)]
}
