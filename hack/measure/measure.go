// Package measure is what the programs that measure the product share: servers on loopback, and what Linux reports
// about a process.
package measure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// Certificate writes tls.crt and tls.key for 127.0.0.1 into a folder, and returns the authorities of clients that trust
// it.
func Certificate(folder string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{
		"tls.crt": public,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return pool, nil
}

// Environment returns the environment that a manifest gives to the first container of its Deployment, as name=value.
func Environment(manifest string) ([]string, error) {
	text, err := os.ReadFile(manifest) //nolint:gosec // the developer names the file
	if err != nil {
		return nil, fmt.Errorf("reading the environment of the program: %w", err)
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.Unmarshal(text, deployment); err != nil {
		return nil, fmt.Errorf("reading %s: %w", manifest, err)
	}
	if len(deployment.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("reading %s: no Deployment with containers", manifest)
	}
	var all []string
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		all = append(all, variable.Name+"="+variable.Value)
	}
	return all, nil
}

// CPUMilliseconds returns the CPU time of all threads of a process, from schedstat, which counts nanoseconds (proc(5)).
// The time of threads that have ended is lost.
func CPUMilliseconds(pid int) (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.New("reading /proc: no schedstat; measure on Linux")
	}
	var sum float64
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of /proc
		if err != nil {
			continue // a thread that has ended
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseFloat(nanoseconds, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", file, err)
		}
		sum += n
	}
	return sum / 1e6, nil
}

// ResidentMiB returns how much memory a process has, and PeakMiB the most that it had.
func ResidentMiB(pid int) float64 { return statusMiB(pid, "VmRSS:") }

// PeakMiB returns the most memory that a process had at once.
func PeakMiB(pid int) float64 { return statusMiB(pid, "VmHWM:") }

func statusMiB(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field); found {
			kilobytes, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return float64(kilobytes) / 1024
		}
	}
	return 0
}
