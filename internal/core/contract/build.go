package contract

import (
	"cmp"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// release and commit are set by the linker: -X MODULE/internal/core/contract.release=v1.2.3. A commit that ends in
// -dirty has changes.
//
//nolint:gochecknoglobals // the linker can set nothing else
var release, commit string

// Build identifies this program.
type Build struct {
	// Version is the release, else the version that Go recorded.
	Version string `json:"version"`
	// Commit is the commit of the source, and Modified that the source differs from it; empty if that is not recorded.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Go is the version of Go, Platform the operating system and architecture.
	Go       string `json:"goVersion"`
	Platform string `json:"platform"`
}

// CurrentBuild returns the Build that runs.
func CurrentBuild() Build {
	info := Build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.Version = cmp.Or(info.Version, build.Main.Version)
		for _, setting := range build.Settings {
			switch setting.Key {
			case "vcs.revision":
				info.Commit = setting.Value
			case "vcs.modified":
				info.Modified = setting.Value == "true"
			}
		}
	}
	if commit != "" {
		info.Commit, info.Modified = strings.CutSuffix(commit, "-dirty")
	}
	info.Version = cmp.Or(info.Version, "(devel)")
	return info
}

// LabelVersion on the Lease of the manager is Label of the one that leads.
const LabelVersion = "app.kubernetes.io/version"

// Label returns the version as the value of a label: other characters are an underscore, and the end is cut.
func (b Build) Label() string {
	text := regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(b.Version, "_")
	return strings.Trim(text[:min(len(text), 63)], "._-")
}

// String returns the version, the version of Go and the platform.
func (b Build) String() string { return b.Version + " " + b.Go + " " + b.Platform }
