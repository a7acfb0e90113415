//go:build e2e

package management

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long certificates are valid: longer than a run, and begun before it, because clocks differ.
const validity = 48 * time.Hour

// Authority is a certificate authority. Its methods may be called concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         any
	// PEM is the certificate of the authority.
	PEM []byte
}

// NewAuthority makes a certificate authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making authority %s: %w", name, err)
	}
	template := newTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making authority %s: %w", name, err)
	}
	return &Authority{certificate: certificate, key: key, PEM: encode("CERTIFICATE", der)}, nil
}

// ParseAuthority returns the authority of a PEM certificate and its PEM key, as a Secret of type
// cluster.x-k8s.io/secret holds them.
func ParseAuthority(certificate, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("parsing authority: %w", err)
	}
	parsed, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("parsing authority: %w", err)
	}
	return &Authority{certificate: parsed, key: pair.PrivateKey, PEM: certificate}, nil
}

// Issue makes a certificate for servers at hosts and for clients, and returns it and its key as PEM.
func (a *Authority) Issue(name string, hosts ...string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("issuing certificate %s: %w", name, err)
	}
	template := newTemplate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issuing certificate %s: %w", name, err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("issuing certificate %s: %w", name, err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", text), nil
}

// writeServing writes tls.crt and tls.key for servers on loopback into a new folder.
func (a *Authority) writeServing(dir string) error {
	certificate, key, err := a.Issue("server", "127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
	)
}

func newTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // rand.Reader never fails
	now := time.Now()                                     //nolint:forbidigo // certificates are valid in real time
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
