// Package version is the version of the program.
package version

import (
	"runtime"
	"runtime/debug"
)

// release is set by the linker: -X github.com/capi-proxy-patcher/capi-proxy-patcher/internal/version.release=v1.2.3.
//
//nolint:gochecknoglobals // the linker can set nothing else
var release string

// String returns the release, else the version that the Go module system recorded, with the Go version and platform.
func String() string {
	v := release
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = info.Main.Version
	}
	if v == "" {
		v = "(devel)"
	}
	return v + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
