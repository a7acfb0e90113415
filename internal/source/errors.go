package source

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"

// Codes of findings about a Cluster, beside those of the packages noproxy and proxyconfig.
const (
	// CodeBadAnnotation rejects an annotation whose value is unknown.
	CodeBadAnnotation noproxy.Code = "bad-annotation"
	// CodeBadLabel rejects a label contract.LabelEnabled with a value that means nothing.
	CodeBadLabel noproxy.Code = "bad-label"
	// CodeUnknownName warns of a label or annotation of the product's domain that nothing reads.
	CodeUnknownName noproxy.Code = "unknown-name"
	// CodeBadEncoding rejects a value of a Secret manifest that is not base64 or not a string.
	CodeBadEncoding noproxy.Code = "bad-encoding"
	// CodeBadMetadata rejects a label or an annotation in a manifest whose value is not a string.
	CodeBadMetadata noproxy.Code = "bad-metadata"
	// CodeSecretNotFound rejects a Cluster or pool whose proxy Secret is missing.
	CodeSecretNotFound noproxy.Code = "secret-not-found"
	// CodeSecretTooLarge rejects settings whose files do not fit into a generated Secret.
	CodeSecretTooLarge noproxy.Code = "secret-too-large"
)

// InvalidError says that the user must change something before the Cluster can be configured. Its text holds no
// secret and is the same on every try.
type InvalidError struct {
	Message string
	// Findings are what Message tells, one by one, for programs.
	Findings []*noproxy.Error
}

func (e *InvalidError) Error() string { return e.Message }

// Unwrap returns the findings, so that noproxy.Errors finds them.
func (e *InvalidError) Unwrap() []error {
	errs := make([]error, len(e.Findings))
	for i, finding := range e.Findings {
		errs[i] = finding
	}
	return errs
}

// Messages returns what err tells, one message for each finding.
func Messages(err error) []string {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand to find all of them, not the first
	case nil:
		return nil
	case *InvalidError:
		if len(e.Findings) < 2 {
			return []string{e.Message}
		}
		messages := make([]string, len(e.Findings))
		for i, finding := range e.Findings {
			messages[i] = finding.Error()
		}
		return messages
	case interface{ Unwrap() []error }:
		var messages []string
		for _, joined := range e.Unwrap() {
			messages = append(messages, Messages(joined)...)
		}
		return messages
	default:
		return []string{err.Error()}
	}
}

// NotFoundError says that a Secret is missing.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }
