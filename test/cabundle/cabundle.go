// Package cabundle makes certificates for tests.
package cabundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// New returns certificate authorities in PEM, no two alike, of at least size bytes and at most 30,000 more. They are
// valid until 2100.
func New(t *testing.T, size int) string {
	t.Helper()
	var text strings.Builder
	for serial := int64(1); text.Len() < size; serial++ {
		text.WriteString(authority(t, serial, 20_000))
	}
	return text.String()
}

// Small returns one certificate authority in PEM, of less than 1,000 bytes.
func Small(t *testing.T) string {
	t.Helper()
	return authority(t, 1, 1)
}

// authority returns a certificate authority that is padded by about so many bytes.
func authority(t *testing.T, serial int64, padding int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), IsCA: true,
		BasicConstraintsValid: true,
		CRLDistributionPoints: []string{"http://" + strings.Repeat("a", padding)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
