package source

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"

// Codes of findings about a Cluster, beside those of the packages noproxy and proxyconfig.
const (
	// CodeBadAnnotation rejects an annotation whose value is unknown.
	CodeBadAnnotation finding.Code = "bad-annotation"
	// CodeBadLabel rejects a label contract.LabelEnabled with a value that means nothing.
	CodeBadLabel finding.Code = "bad-label"
	// CodeUnknownName warns of a label or annotation of the product's domain that nothing reads.
	CodeUnknownName finding.Code = "unknown-name"
	// CodeBadEncoding rejects a value of a Secret manifest that is not base64 or not a string.
	CodeBadEncoding finding.Code = "bad-encoding"
	// CodeBadMetadata rejects a label or an annotation in a manifest whose value is not a string.
	CodeBadMetadata finding.Code = "bad-metadata"
	// CodeSecretNotFound rejects a Cluster or pool whose proxy Secret is missing.
	CodeSecretNotFound finding.Code = "secret-not-found"
	// CodeSecretTooLarge rejects settings whose files do not fit into a generated Secret.
	CodeSecretTooLarge finding.Code = "secret-too-large"
)
