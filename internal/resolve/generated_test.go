package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func TestSecretData_FitsIntoASecretOrSaysSo(t *testing.T) {
	t.Parallel()
	var entries strings.Builder
	for i := range 4000 {
		entries.WriteString(strings.Repeat("a", i%20+1) + ".example.com ")
	}
	resolved := func(size int, delivery string) (resolve.Resolution, error) {
		reader := &secrets{data: map[string]map[string]string{
			"team/http-proxy": {"httpProxy": "http://u:s3cr@p:1", "trustedCA": cabundle.New(t, size), "noProxy": entries.String()},
		}}
		return resolve.Resolver{Secrets: reader}.Resolve(t.Context(), intent.Cluster{Namespace: "team", Name: "one"},
			intent.Options{Delivery: delivery}, "")
	}
	fits, err := resolved(200_000, contract.DeliveryReference)
	if err != nil {
		t.Fatal(err)
	}
	for _, beside := range []int{0, 500_000} {
		data, err := resolve.SecretData(fits, beside)
		if err != nil {
			t.Fatal(err)
		}
		size := beside
		for _, value := range data {
			size += len(value)
		}
		if size > corev1.MaxSecretSize || len(data[contract.KeyNoProxyOrigins]) == 0 {
			t.Errorf("%d bytes with %d beside, origins %q", size, beside, data[contract.KeyNoProxyOrigins])
		}
	}
	_, besideTooMuch := resolve.SecretData(fits, 900_000)
	_, tooMuch := resolved(300_000, contract.DeliveryReference)
	for code, err := range map[finding.Code]error{
		resolve.CodeSecretTooLarge: besideTooMuch, proxyconfig.CodeValueTooLarge: tooMuch,
	} {
		found := finding.Of(err)
		if len(found) == 0 || found[0].Code != code || strings.Contains(err.Error(), "s3cr") ||
			!strings.Contains(err.Error(), "Secret team/http-proxy") || found[0].Advice == "" {
			t.Errorf("error %v", err)
		}
	}
	if !strings.Contains(besideTooMuch.Error(), "and adopted files 900000") {
		t.Errorf("error %v", besideTooMuch)
	}
}

func TestSecretData_HasReadinessEndpointsIfThereAreAny(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "https://b.example/ https://A.example": "https://b.example/\nhttps://a.example\n"} {
		reader := &secrets{data: map[string]map[string]string{
			"team/http-proxy": {"httpProxy": "http://p:1", "readinessEndpoints": text},
		}}
		resolution, err := resolve.Resolver{Secrets: reader}.Resolve(t.Context(), intent.Cluster{Namespace: "team", Name: "one"},
			intent.Options{Delivery: contract.DeliveryReference}, "")
		if err != nil {
			t.Fatal(err)
		}
		data, err := resolve.SecretData(resolution, 0)
		got, given := data[contract.KeyReadiness]
		if err != nil || string(got) != want || given != (want != "") {
			t.Errorf("%q gives %q, %t, %v", text, got, given, err)
		}
	}
}
