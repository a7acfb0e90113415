package clusters

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// secretReader finds proxy Secrets in the input, then in the files given for them.
type secretReader struct {
	input, given Index
	// only is the Secret of the given files if they hold exactly one: it serves every Cluster that names no other. The
	// installation-wide Secret does not need that.
	only *manifest.Object
}

func newSecretReader(input, given Index, files []Input, installation types.NamespacedName) (secretReader, error) {
	r := secretReader{input: input, given: given}
	secrets := given.secrets()
	if len(files) > 0 && len(secrets) == 0 {
		return r, fmt.Errorf("%s: it holds no Secret; give a manifest of kind Secret with --secret", files[0].Name)
	}
	if len(secrets) == 1 && (secrets[0].Name() != installation.Name || secrets[0].Namespace() != installation.Namespace) {
		r.only = secrets[0]
	}
	return r, nil
}

// lookup returns the Secret to which a name refers, or nil. A given one has precedence over one that is encrypted.
func (r secretReader) lookup(name types.NamespacedName) *manifest.Object {
	input, given := r.input.FindSecret(name), r.given.FindSecret(name)
	if input != nil && isEncrypted(input) {
		return cmp.Or(given, input)
	}
	return cmp.Or(input, given)
}

// ReadSecret implements settings.SecretReader.
func (r secretReader) ReadSecret(_ context.Context, name types.NamespacedName) (*settings.Secret, error) {
	if o := r.lookup(name); o != nil {
		return decodeSecret(o, name)
	}
	if r.only != nil && name.Name == contract.DefaultSecretName {
		return decodeSecret(r.only, types.NamespacedName{Namespace: name.Namespace, Name: r.only.Name()})
	}
	return nil, nil //nolint:nilnil // the interface says so
}

// decodeSecret returns the data of a Secret manifest; stringData wins over data, as in the API server.
func decodeSecret(o *manifest.Object, at types.NamespacedName) (*settings.Secret, error) {
	_, watched := o.Labels()[contract.LabelProxySecret]
	secret := &settings.Secret{Name: at, Data: map[string][]byte{}, Watched: watched, Where: Place(o)}
	if isEncrypted(o) {
		return secret, encrypted(o)
	}
	var found finding.Errors
	value := o.Value()
	for _, key := range sortedKeys(Dig(value, "data")) {
		text, isText := Dig(value, "data")[key].(string)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !isText {
			found = append(found, badEncoding(o, "data", key, "is not base64", "encode it or use stringData"))
		}
		secret.Data[key] = data
	}
	for _, key := range sortedKeys(Dig(value, "stringData")) {
		text, isText := Dig(value, "stringData")[key].(string)
		if !isText {
			found = append(found, badEncoding(o, "stringData", key, "is not a string", "quote it"))
		}
		secret.Data[key] = []byte(text)
	}
	return secret, found.Err()
}

func badEncoding(o *manifest.Object, field, key, why, advice string) finding.Finding {
	return finding.Rejection(settings.CodeBadEncoding, finding.Key(field, key).Of(Place(o)), "the value "+why, advice)
}
