package manager

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// FlagError is a mistake in the flags.
type FlagError struct{ error }

// off is the value of an address flag that disables its server.
const off = "0"

// check validates the flags whose mistakes the start would not show. Its error is one line.
func (o Options) check() error {
	if _, err := o.installation(nil); err != nil {
		return FlagError{err}
	}
	switch {
	case o.SyncPeriod <= 0: // none at all for 0, and without a pause for less
		return usagef("--sync-period %s: use a longer time, for example 10m", o.SyncPeriod)
	case o.Concurrency < 1:
		return usagef("--concurrency %d: use 1 or more", o.Concurrency)
	}
	for _, extension := range o.Extensions {
		if err := extension.Check(); err != nil {
			return FlagError{err}
		}
	}
	return firstOf(o.Serving.check(), o.checkFeatures())
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func usagef(format string, arguments ...any) error {
	return FlagError{fmt.Errorf(format, arguments...)}
}

// installation returns the installation-wide Secret. Namespaces are read from cached.
func (o Options) installation(cached client.Reader) (settings.Installation, error) {
	secret, err := ParseDefaultSecret(o.DefaultProxySecret)
	if err != nil {
		return settings.Installation{}, err
	}
	selector, err := labels.Parse(o.DefaultProxyNamespaces)
	if o.DefaultProxyNamespaces == "" {
		selector = labels.Nothing()
	}
	if err != nil {
		return settings.Installation{}, fmt.Errorf(
			"--default-proxy-namespaces %q: %w; use a label selector such as KEY=VALUE",
			o.DefaultProxyNamespaces, err)
	}
	return settings.Installation{
		Secret:     secret,
		Namespaces: world.LabelledNamespaces{Cached: cached, Selector: selector},
	}, nil
}

// ParseDefaultSecret reads the value of --default-proxy-secret.
func ParseDefaultSecret(text string) (types.NamespacedName, error) {
	if text == "" {
		return types.NamespacedName{}, nil
	}
	namespace, name, _ := strings.Cut(text, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("--default-proxy-secret %q: write namespace/name", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
