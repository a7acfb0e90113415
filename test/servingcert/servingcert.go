// Package servingcert writes the certificate of a server that a test starts.
package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Write writes tls.crt, tls.key and ca.crt into a folder: a certificate for 127.0.0.1, for servers and clients, that is
// its own authority.
func Write(tb testing.TB, folder string) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter:    time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for name, text := range map[string][]byte{"tls.crt": public, "ca.crt": public, "tls.key": secret} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(public, secret)
	if err != nil {
		tb.Fatal(err)
	}
	return pair
}

// Pool returns the authorities of clients that trust a certificate of Write.
func Pool(certificate tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(certificate.Leaf)
	return pool
}
