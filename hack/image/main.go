// Command image builds the container image of the product, for several platforms, without a daemon and without a base
// image, and writes it as an OCI layout. The same commit results in the same bytes, on any machine and at any time, if
// it is built with the same Go.
//
//	image -root . -out out/image -version v1.2.3 -revision COMMIT
//
// It prints only the digest of the image. With -push the image is also pushed to a registry, with the credentials of
// docker login or the like.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var (
		o         options
		flags     = flag.NewFlagSet("image", flag.ContinueOnError)
		platforms = flags.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
		created   = flags.Int64("created", 0, "time of the image, in seconds since 1970: that of the commit")
		out       = flags.String("out", "out/image", "folder of the OCI layout, which is replaced")
		push      = flags.String("push", "", "registry/name:tag to push to")
	)
	flags.StringVar(&o.root, "root", ".", "folder of the repository")
	flags.StringVar(&o.program, "package", "./cmd/capi-proxy-patcher", "package of the program")
	flags.StringVar(&o.version, "version", "devel", "version of the product")
	flags.StringVar(&o.revision, "revision", "", "commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	o.created = time.Unix(*created, 0).UTC()
	for text := range strings.SplitSeq(*platforms, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" {
			return fmt.Errorf("-platforms %q: use linux/amd64, linux/arm64", *platforms)
		}
		o.platforms = append(o.platforms, platform)
	}
	// Checked before minutes of building.
	var target name.Reference
	if *push != "" {
		var err error
		if target, err = name.ParseReference(*push, name.StrictValidation); err != nil {
			return fmt.Errorf("-push: name a registry, a repository and a tag: %w", err)
		}
	}
	index, err := o.build(ctx)
	if err != nil {
		return err
	}
	if err := write(*out, index, o.version); err != nil {
		return err
	}
	if target != nil {
		if err := remote.WriteIndex(target, index, remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("pushing to %s: %w", target, err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, digest)
	return err
}
