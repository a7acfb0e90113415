package manager

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
)

// FlagError is a mistake in the flags.
type FlagError struct{ error }

// off is the value of an address flag that disables its server.
const off = "0"

// check validates all flags before anything starts. Its error is one line.
func (o Options) check() error {
	return firstOf(
		o.Serving.check(),
		checkName("--namespace", o.Namespace, validation.IsDNS1123Label),
		checkName("--node-image-pull-secret", o.NodePullSecret, validation.IsDNS1123Subdomain),
		checkName("--watch-filter", o.WatchFilter, validation.IsValidLabelValue),
		checkName("--leader-elect-namespace", o.Election.Namespace, validation.IsDNS1123Label),
		o.Election.check(),
		o.checkInstallation(),
		atLeast("--concurrency", o.Concurrency, 1),
		longerThan("--sync-period", o.SyncPeriod, 0),
		checkSyncPeriod(o.SyncPeriod),
		atLeast("--kube-api-burst", o.Burst, 1),
		checkQPS(o.QPS),
		checkAddress("--profiler-address", o.ProfilerAddress),
		o.checkFeatures(),
		o.checkWebhooks(),
		o.checkNodeImage(),
	)
}

// imagePattern matches the name of an image, of at most maxImage bytes.
var imagePattern = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._:/@+\[\]-]*$`)

const maxImage = 512

func (o Options) checkNodeImage() error {
	switch policy := corev1.PullPolicy(o.NodeImagePullPolicy); {
	case policy != corev1.PullAlways && policy != corev1.PullIfNotPresent:
		return usagef("--node-image-pull-policy %q: neither %s nor %s", policy, corev1.PullAlways, corev1.PullIfNotPresent)
	case o.NodeImage == "":
		return nil
	case len(o.NodeImage) > maxImage || !imagePattern.MatchString(o.NodeImage):
		return usagef("--node-image %q: not the name of an image", o.NodeImage)
	}
	return nil
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

// checkName checks the value of a flag, unless it is empty, against a rule of package validation.
func checkName(flag, value string, rule func(string) []string) error {
	if value == "" {
		return nil
	}
	if problems := rule(value); len(problems) > 0 {
		return usagef("%s %q: %s", flag, value, problems[0])
	}
	return nil
}

func atLeast(flag string, value, least int) error {
	if value < least {
		return usagef("%s %d: use %d or more", flag, value, least)
	}
	return nil
}

func longerThan(flag string, value, than time.Duration) error {
	if value <= than {
		return usagef("%s %s: use a longer time, for example 10m", flag, value)
	}
	return nil
}

// maxSyncPeriod is the longest --sync-period.
const maxSyncPeriod = 24 * time.Hour

func checkSyncPeriod(period time.Duration) error {
	if period > maxSyncPeriod {
		return usagef("--sync-period %s: use at most 24h, because what is not watched, such as a proxy Secret without its "+
			"label, takes effect only then", period)
	}
	return nil
}

func checkQPS(value float32) error {
	if !(value > 0) { // NaN is not either
		return usagef("--kube-api-qps %v: use more than 0", value)
	}
	return nil
}

// checkPort accepts 0 if that disables the server.
func checkPort(flag string, port int, mayBeOff bool) error {
	if port == 0 && mayBeOff || port >= 1 && port <= 65535 {
		return nil
	}
	return usagef("%s %d: use a port from 1 to 65535", flag, port)
}

// checkAddress checks that an address is host:port. The host is an IP address, localhost or empty, which means all.
func checkAddress(flag, address string) error {
	if address == off {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	if err != nil || !isHost(host) || checkPort(flag, number, false) != nil {
		return usagef("%s %q: use an address and a port such as :8081 or 127.0.0.1:8081, or 0 to disable it", flag, address)
	}
	return nil
}

// checkHost checks the address of a server whose port is another flag.
func checkHost(flag, host string) error {
	if !isHost(host) {
		return usagef("%s %q: use an IP address without a port, or leave it empty for all addresses", flag, host)
	}
	return nil
}

func isHost(host string) bool { return host == "" || host == "localhost" || net.ParseIP(host) != nil }

// checkInstallation checks the flags about the installation-wide Secret.
func (o Options) checkInstallation() error {
	if _, err := o.installation(nil); err != nil {
		return FlagError{err}
	}
	return nil
}

// installation returns the installation-wide Secret. Namespaces are read from cached.
func (o Options) installation(cached client.Reader) (resolve.Installation, error) {
	secret, err := ParseDefaultSecret(o.DefaultProxySecret)
	if err != nil {
		return resolve.Installation{}, err
	}
	selector, err := labels.Parse(o.DefaultProxyNamespaces)
	if o.DefaultProxyNamespaces == "" {
		selector = labels.Nothing()
	}
	if err != nil {
		return resolve.Installation{}, fmt.Errorf("--default-proxy-namespaces %q: %w; use a label selector such as KEY=VALUE",
			o.DefaultProxyNamespaces, err)
	}
	return resolve.Installation{
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

// checkWebhooks checks the flags of the webhooks.
func (o Options) checkWebhooks() error {
	if err := firstOf(checkPort("--webhook-port", o.WebhookPort, true),
		checkHost("--webhook-bind-address", o.WebhookBindAddress)); err != nil || !o.webhooks() {
		return err
	}
	for flag, name := range map[string]string{
		"--webhook-cert-name": o.WebhookCertName, "--webhook-key-name": o.WebhookKeyName,
	} {
		if filepath.Base(name) != name {
			return usagef("%s %q: name a file in --webhook-cert-dir, without a folder", flag, name)
		}
	}
	return checkFiles("--webhook-cert-dir", o.WebhookCertDir, o.WebhookCertName, o.WebhookKeyName)
}

// checkFiles reports the first of some files in a folder that cannot be read.
func checkFiles(flag, folder string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(folder, name)
		if _, err := os.ReadFile(path); err != nil { //nolint:gosec // the folder is the operator's own choice
			why := "cannot be read"
			if errors.Is(err, os.ErrNotExist) {
				why = "does not exist"
			}
			return usagef("%s: file %s %s; mount the Secret of the certificate there", flag, path, why)
		}
	}
	return nil
}
