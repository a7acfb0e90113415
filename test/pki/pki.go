// Package pki makes certificates for tests.
package pki

import (
	"crypto"
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
	"strings"
	"testing"
	"time"
)

// Authority is a certificate authority. Its methods may be called concurrently.
type Authority struct {
	// PEM is its certificate.
	PEM         []byte
	certificate *x509.Certificate
	key         crypto.Signer
}

// New makes an authority that is valid from 2020 to 2049, whatever the clock of a machine says. edit changes its
// certificate before it is signed.
func New(name string, edit ...func(*x509.Certificate)) (*Authority, error) {
	template := newTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	for _, edit := range edit {
		edit(template)
	}
	return sign(template, nil)
}

// Make makes an authority for a test.
func Make(tb testing.TB, name string, edit ...func(*x509.Certificate)) *Authority {
	tb.Helper()
	a, err := New(name, edit...)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// Parse returns the authority of a PEM certificate and its PEM key, as a Secret of type cluster.x-k8s.io/secret holds
// them.
func Parse(certificate, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("parsing authority: %w", err)
	}
	signer, _ := pair.PrivateKey.(crypto.Signer) // each kind of X509KeyPair is one
	return &Authority{PEM: certificate, certificate: pair.Leaf, key: signer}, nil
}

// Issue makes a certificate for servers at hosts, names or addresses, and for clients. It returns it and its key as
// PEM.
func (a *Authority) Issue(name string, hosts ...string) (certificate, key []byte, err error) {
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
	issued, err := sign(template, a)
	if err != nil {
		return nil, nil, err
	}
	return issued.PEM, issued.Key(), nil
}

// IssueFor is Issue for a test.
func (a *Authority) IssueFor(tb testing.TB, hosts ...string) (certificate, key []byte) {
	tb.Helper()
	certificate, key, err := a.Issue("server", hosts...)
	if err != nil {
		tb.Fatal(err)
	}
	return certificate, key
}

// Key returns the key as PEM.
func (a *Authority) Key() []byte {
	text, _ := x509.MarshalPKCS8PrivateKey(a.key) // of a kind that can be encoded
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// TLS returns the certificate as that of a server.
func (a *Authority) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.certificate.Raw}, PrivateKey: a.key, Leaf: a.certificate}
}

// Serve writes tls.crt, tls.key and ca.crt into a folder: a certificate for 127.0.0.1, for servers and clients, that is
// its own authority.
func Serve(tb testing.TB, folder string) *Authority {
	tb.Helper()
	a := Make(tb, "server", func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})
	if err := errors.Join(WritePair(folder, a.PEM, a.Key()),
		os.WriteFile(filepath.Join(folder, "ca.crt"), a.PEM, 0o600)); err != nil {
		tb.Fatal(err)
	}
	return a
}

// WritePair writes a certificate and its key into a folder, as tls.crt and tls.key.
func WritePair(folder string, certificate, key []byte) error {
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600),
	)
}

// Pool returns the authorities of clients that trust the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Bundle returns certificate authorities in PEM, no two alike, of at least size bytes and at most 30,000 more.
func Bundle(tb testing.TB, size int) string {
	tb.Helper()
	var text strings.Builder
	for text.Len() < size {
		text.Write(Make(tb, "bundle", func(c *x509.Certificate) {
			c.CRLDistributionPoints = []string{"http://" + strings.Repeat("a", 20_000)}
		}).PEM)
	}
	return text.String()
}

// Text returns one certificate authority in PEM, of less than 1,000 bytes.
func Text(tb testing.TB) string {
	tb.Helper()
	return string(Make(tb, "test").PEM)
}

func newTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // rand.Reader never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2049, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// sign makes the certificate of a template and a key. Without a parent it signs itself.
func sign(template *x509.Certificate, parent *Authority) (*Authority, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making certificate %s: %w", name, err)
	}
	if parent == nil {
		parent = &Authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.certificate, key.Public(), parent.key)
	if err != nil {
		return nil, fmt.Errorf("making certificate %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making certificate %s: %w", name, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &Authority{PEM: text, certificate: certificate, key: key}, nil
}
