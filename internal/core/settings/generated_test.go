package settings_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

func TestSecretData_FitsIntoASecret(t *testing.T) {
	t.Parallel()
	var entries strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&entries, "%s%d.com ", strings.Repeat("a", i%8+1), i)
	}
	resolved := func(size int) (settings.Resolution, error) {
		reader := &secrets{data: map[string]map[string]string{
			"team/http-proxy": {"httpProxy": "http://u:s3cr@p:1", "trustedCA": pki.Bundle(t, size), "noProxy": entries.String()},
		}}
		return settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
			settings.Options{}, "")
	}
	largest, err := resolved(230_000)
	if err != nil {
		t.Fatal(err)
	}
	data, err := settings.SecretData(largest)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > corev1.MaxSecretSize*4/5 || len(data[contract.KeyNoProxyOrigins]) == 0 {
		t.Errorf("%d bytes, origins %.200q", size, data[contract.KeyNoProxyOrigins])
	}
	_, tooMuch := resolved(300_000)
	if found := finding.Of(tooMuch); len(found) == 0 || found[0].Code != settings.CodeValueTooLarge ||
		strings.Contains(tooMuch.Error(), "s3cr") || !strings.Contains(tooMuch.Error(), "Secret team/http-proxy") ||
		found[0].Advice == "" {
		t.Errorf("error %v", tooMuch)
	}
}

func TestSecretData_HasReadinessEndpointsIfThereAreAny(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "https://b.example/ https://A.example": "https://b.example/\nhttps://a.example\n"} {
		reader := &secrets{data: map[string]map[string]string{
			"team/http-proxy": {"httpProxy": "http://p:1", "readinessEndpoints": text},
		}}
		resolution, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
			settings.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		data, err := settings.SecretData(resolution)
		got, given := data[contract.KeyReadiness]
		if err != nil || string(got) != want || given != (want != "") {
			t.Errorf("%q gives %q, %t, %v", text, got, given, err)
		}
		const hosts = "'https://b.example https://a.example'"
		if asks := strings.Contains(string(data[contract.KeySetup]), hosts); asks != given {
			t.Errorf("%q: script asks %t", text, asks)
		}
	}
}

// TestSecretData_RendersWhatNobodyHasRendered has settings that no Resolver has found.
func TestSecretData_RendersWhatNobodyHasRendered(t *testing.T) {
	t.Parallel()
	proxy, err := settings.ParseSecret(map[string][]byte{"httpProxy": []byte("http://p:1")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := settings.SecretData(settings.Resolution{Settings: proxy})
	if err != nil || !strings.Contains(string(data[contract.KeyProxyEnv]), "http://p:1") {
		t.Errorf("got %q, error %v", data[contract.KeyProxyEnv], err)
	}
}
