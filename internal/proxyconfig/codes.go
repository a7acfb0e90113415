package proxyconfig

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"

// Codes of findings about a proxy Secret as an object.
const (
	// CodeSecretNotFound rejects a Cluster or pool whose proxy Secret is missing.
	CodeSecretNotFound finding.Code = "secret-not-found"
	// CodeUnlabelledSecret warns of a proxy Secret without contract.LabelProxySecret.
	CodeUnlabelledSecret finding.Code = "unlabelled-secret" //nolint:gosec // not a credential
)
