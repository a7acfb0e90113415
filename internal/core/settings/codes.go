package settings

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"

// Codes of findings about a Cluster, beside those of package noproxy.
const (
	// CodeBadAnnotation rejects an annotation whose value is unknown.
	CodeBadAnnotation finding.Code = "bad-annotation"
	// CodeBadLabel rejects an unknown value of label contract.LabelEnabled.
	CodeBadLabel finding.Code = "bad-label"
	// CodeUnknownName warns of a label or annotation of the product's domain that nothing reads.
	CodeUnknownName finding.Code = "unknown-name"
	// CodeBadEncoding rejects a value of a Secret manifest that is not base64 or not a string.
	CodeBadEncoding finding.Code = "bad-encoding"
	// CodeBadMetadata rejects a label or an annotation in a manifest whose value is not a string.
	CodeBadMetadata finding.Code = "bad-metadata"
	// CodeBadVariable rejects a variable of a topology whose value cannot be used.
	CodeBadVariable finding.Code = "bad-variable"
	// CodeContradiction rejects a variable and an annotation, or an override, that contradict each other.
	CodeContradiction finding.Code = "contradiction"
)

// Codes of findings about a proxy Secret as an object.
const (
	// CodeSecretNotFound rejects a Cluster or pool whose proxy Secret is missing.
	CodeSecretNotFound finding.Code = "secret-not-found"
	// CodeUnlabelledSecret warns of a proxy Secret without contract.LabelProxySecret.
	CodeUnlabelledSecret finding.Code = "unlabelled-secret" //nolint:gosec // not a credential
)
