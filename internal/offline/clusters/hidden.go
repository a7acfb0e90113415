package clusters

import (
	"cmp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// CodeSecretEncrypted notes a proxy Secret with values that are not in the manifests.
const CodeSecretEncrypted finding.Code = "secret-encrypted"

// HiddenError is that values of a Secret are not in the manifests: they are encrypted by SOPS, or a SealedSecret or an
// ExternalSecret makes the Secret.
type HiddenError struct {
	// Place names the object.
	Place string
	// Data are the keys of the Secret as far as they are known, with the values that are in clear text. Others are
	// replaced by values that are valid for their key, or left out.
	Data map[string][]byte

	keys map[string]bool // with values that are not known
	all  bool            // all keys are known
	why  string
}

// Error implements error.
func (e *HiddenError) Error() string { return e.Place + ": " + e.why }

// Finding returns the note about the Secret.
func (e *HiddenError) Finding() finding.Finding {
	return finding.Finding{
		Code: CodeSecretEncrypted, Place: finding.Place{Object: e.Place}, Message: e.why + ", so these are not checked",
		Advice: "check the Secret where its values are known, by lint with --secret",
	}
}

// has reports whether the value of a key is not known.
func (e *HiddenError) has(key string) bool { return e != nil && e.keys[key] }

// IsTrustOnly reports whether the keys are those of a Secret with certificates and no proxy URL.
func (e *HiddenError) IsTrustOnly() bool {
	_, http := e.Data[contract.KeyHTTPProxy]
	_, https := e.Data[contract.KeyHTTPSProxy]
	_, trusted := e.Data[contract.KeyTrustedCA]
	return e.all && !http && !https && (trusted || e.keys[contract.KeyTrustedCA])
}

// IsCertain reports whether a finding about Data holds for the Secret, too: it is about a key that no Secret has, or
// about a value in clear text.
func (e *HiddenError) IsCertain(f finding.Finding) bool {
	if f.Place.Kind != finding.InKey || len(f.Place.Path) != 1 {
		return e.all && !e.IsTrustOnly()
	}
	key := f.Place.Path[0].Name
	return !e.keys[key] || !slices.Contains(contract.SecretKeys(), key)
}

// madeName is the name of the Secret that an object is or makes, "" for none.
func madeName(o *manifest.Object) string {
	group, _, _ := strings.Cut(o.APIVersion(), "/")
	switch o.Kind() + "." + group {
	case "Secret.v1", "SealedSecret.bitnami.com":
		return o.Name()
	case "ExternalSecret.external-secrets.io":
		target := Dig(o.Value(), "spec", "target")
		if policy := target["creationPolicy"]; policy == "None" || policy == "Merge" {
			return "" // it creates none
		}
		name, _ := target["name"].(string)
		return cmp.Or(name, o.Name())
	}
	return ""
}

// labelsOf returns the labels of the Secret that an object is or makes.
func labelsOf(o *manifest.Object) map[string]string {
	template := Dig(o.Value(), "spec", "template")
	switch o.Kind() {
	case "ExternalSecret":
		if template = Dig(o.Value(), "spec", "target", "template"); template == nil {
			return o.Labels() // they are copied
		}
	case "SealedSecret":
	default:
		return o.Labels()
	}
	labels := map[string]string{}
	for key, value := range Dig(template, "metadata", "labels") {
		labels[key], _ = value.(string)
	}
	return labels
}

// hiddenOf returns the hidden keys of the Secret that an object is or makes, nil if there are none.
func hiddenOf(o *manifest.Object) *HiddenError {
	e := &HiddenError{Place: Place(o), Data: map[string][]byte{}, keys: map[string]bool{}, all: true}
	value := o.Value()
	hide := func(key string) {
		e.keys[key] = true
		if key != contract.KeyTrustedCA { // for which no value is valid
			e.Data[key] = placeholder(key)
		}
	}
	switch o.Kind() {
	case "SealedSecret":
		e.why = "the values of the Secret are encrypted in a SealedSecret"
		e.all = Dig(value, "spec")["data"] == nil
		for key := range Dig(value, "spec", "encryptedData") {
			hide(key)
		}
		for key, text := range Dig(value, "spec", "template", "data") {
			if hide(key); text == nil {
				delete(e.Data, key)
				delete(e.keys, key)
			}
		}
	case "ExternalSecret":
		e.why = "the Secret comes from an ExternalSecret, so its values are not in the manifests"
		spec := Dig(value, "spec")
		template := Dig(spec, "target", "template")
		e.all = spec["dataFrom"] == nil && template["templateFrom"] == nil
		for _, item := range Items(spec, "data") {
			replaced := template["data"] != nil && template["mergePolicy"] != "Merge"
			if key, isText := item["secretKey"].(string); isText && !replaced {
				hide(key)
			}
		}
		for key := range Dig(template, "data") {
			e.all = template["templateFrom"] == nil && (e.all || template["mergePolicy"] != "Merge")
			hide(key)
		}
	default:
		e.why = "values of the Secret are encrypted by SOPS"
		for _, field := range []string{"data", "stringData"} {
			for key, text := range Dig(value, field) {
				if text, isText := text.(string); isText && strings.HasPrefix(text, "ENC[AES256_GCM,") {
					hide(key)
				}
			}
		}
		if len(e.keys) == 0 {
			return nil
		}
	}
	return e
}

// placeholder is a valid value of a key.
func placeholder(key string) []byte {
	switch key {
	case contract.KeyHTTPProxy, contract.KeyHTTPSProxy:
		return []byte("http://encrypted.invalid:3128")
	case contract.KeyUsername, contract.KeyPassword:
		return []byte("encrypted")
	}
	return []byte{}
}
