package settings

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Codes of warnings about trusted certificates.
const (
	CodeCAExpired  finding.Code = "ca-expired"
	CodeCAExpiring finding.Code = "ca-expiring"
	CodeCANotCA    finding.Code = "ca-not-ca"
	CodeCANoSAN    finding.Code = "ca-no-san"
	CodeCASize     finding.Code = "ca-size"
)

// expiryNotice is how long before a certificate expires the warning begins.
const expiryNotice = 30 * 24 * time.Hour

// Certificate is one certificate of a trustedCA bundle.
type Certificate struct {
	parsed *x509.Certificate
	// pem encodes it, once for all Clusters that have it.
	pem func() []byte
}

func certificateOf(parsed *x509.Certificate) Certificate {
	return Certificate{parsed, sync.OnceValue(func() []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: parsed.Raw})
	})}
}

// PEM returns the certificate as one PEM block, without headers or comments, ending with a line end. Nobody may change
// it.
func (c Certificate) PEM() []byte { return c.pem() }

// parseCertificates reads a PEM bundle. Text outside the blocks is a comment, as it is for OpenSSL.
func parseCertificates(bundle []byte) ([]Certificate, *finding.Finding) {
	bad := func(message, advice string) ([]Certificate, *finding.Finding) {
		return nil, rejection(CodeBadCA, contract.KeyTrustedCA, message, advice)
	}
	if len(bytes.TrimSpace(bundle)) == 0 {
		return bad("no certificate", "put PEM certificates here or remove the key")
	}
	var (
		certificates []Certificate
		seen         = map[[sha256.Size]byte]bool{}
		rest         = bytes.ReplaceAll(bundle, []byte("\r\n"), []byte("\n"))
		number       int
	)
	for {
		before := rest
		block, after := pem.Decode(rest)
		if block == nil {
			if bytes.Contains(before, []byte("-----BEGIN")) {
				return bad(fmt.Sprintf("block %d is cut or damaged PEM", number+1),
					"paste the whole block, from -----BEGIN to -----END")
			}
			break
		}
		if skipped := before[:len(before)-len(after)]; bytes.Count(skipped, []byte("-----BEGIN ")) > 1 {
			return bad(fmt.Sprintf("block %d is cut or damaged PEM", number+1),
				"paste the whole block, from -----BEGIN to -----END")
		}
		rest = after
		number++
		switch {
		case strings.Contains(block.Type, "PRIVATE KEY"):
			return bad(fmt.Sprintf("block %d is a private key", number),
				"remove it and consider the key published; nodes need only certificates")
		case block.Type != "CERTIFICATE":
			return bad(fmt.Sprintf("block %d is not a certificate", number),
				"keep only blocks that begin with -----BEGIN CERTIFICATE-----")
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return bad(fmt.Sprintf("block %d does not hold a certificate that can be parsed", number),
				"export the certificate again as PEM")
		}
		if sum := sha256.Sum256(parsed.Raw); !seen[sum] {
			seen[sum] = true
			certificates = append(certificates, certificateOf(parsed))
		}
	}
	if number == 0 {
		if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(bundle)), "")); err == nil &&
			bytes.Contains(decoded, []byte("-----BEGIN")) {
			return bad("base64 of PEM instead of PEM", "move the value from stringData to data, or decode it")
		}
		return bad("not PEM", "convert it to PEM, for example with openssl x509 -inform der -outform pem")
	}
	return certificates, nil
}

// TrustedCAExpiry returns when the first of the trusted certificates expires, the zero time without any.
func (s Proxy) TrustedCAExpiry() (first time.Time) {
	for _, certificate := range s.TrustedCA {
		if expiry := certificate.parsed.NotAfter; first.IsZero() || expiry.Before(first) {
			first = expiry
		}
	}
	return first
}

// TrustedCAWarnings returns the warnings about the trusted certificates at the time now, in their order.
func (s Proxy) TrustedCAWarnings(now time.Time) []finding.Finding {
	const most = 65_535
	var warnings []finding.Finding
	size := 0
	for i, certificate := range s.TrustedCA {
		c := certificate.parsed
		size += len(certificate.PEM())
		warn := func(code finding.Code, message, fix string) {
			warnings = append(warnings, finding.Finding{
				Code: code, Place: finding.Key(contract.KeyTrustedCA).At(i + 1), Message: message, Advice: fix,
			})
		}
		switch {
		case now.After(c.NotAfter):
			warn(CodeCAExpired, "the certificate expired on "+c.NotAfter.UTC().Format(time.DateOnly), "replace it")
		case now.Add(expiryNotice).After(c.NotAfter):
			warn(CodeCAExpiring, "the certificate expires on "+c.NotAfter.UTC().Format(time.DateOnly),
				"replace it before then")
		}
		if c.IsCA {
			continue
		}
		warn(CodeCANotCA, "the certificate is no certificate authority: RHEL and its kin, Amazon and Azure Linux, Arch "+
			"and SUSE do not trust it, other systems trust it only for itself",
			"use the certificate of the authority that signed it")
		if len(c.DNSNames)+len(c.IPAddresses)+len(c.URIs)+len(c.EmailAddresses) == 0 {
			warn(CodeCANoSAN, "the certificate has no subject alternative name, which Go programs refuse",
				"reissue it with one")
		}
	}
	if size > most {
		warnings = append(warnings, finding.Finding{
			Code: CodeCASize, Place: finding.Key(contract.KeyTrustedCA),
			Message: fmt.Sprintf("%d certificates of %d bytes are in the user data of every Machine, and most clouds take %d "+
				"bytes or less", len(s.TrustedCA), size, most),
			Advice: "keep only your own authorities; nodes trust those of their operating system already",
		})
	}
	return warnings
}
