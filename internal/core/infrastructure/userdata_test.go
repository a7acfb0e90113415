package infrastructure_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
)

func TestUserDataLimit_IsThatOfEC2IfItGetsIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{kind: AWSMachineTemplate}": false,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {cloudInit: {}}}}}":                                                              false,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {cloudInit: {insecureSkipSecretsManager: true}}}}}":                              true,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {uncompressedUserData: true, cloudInit: {insecureSkipSecretsManager: true}}}}}":  true,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {uncompressedUserData: false, cloudInit: {insecureSkipSecretsManager: true}}}}}": false,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {ignition: {version: '2.3'}, cloudInit: {insecureSkipSecretsManager: true}}}}}":  false,
		"{kind: AWSMachineTemplate, spec: {template: {spec: {ignition: {storageType: UnencryptedUserData}}}}}":                               true,
		"{kind: AWSMachineTemplate, spec: [no, object]}":                                                                                     false,
		"{kind: AWSMachinePool, spec: {awsLaunchTemplate: {}}}":                                                                              true,
		"{kind: AWSMachinePool, spec: {ignition: {version: '3.4', storageType: ClusterObjectStore}}}":                                        false,
		"{kind: AzureMachineTemplate, spec: {template: {spec: {vmSize: x}}}}":                                                                false,
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		kind, _ := object["kind"].(string)
		if got := infrastructure.UserDataLimit(kind, object) == 16_384; got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestOf_LeavesRoomForBase64 has the limits of those clouds that count the encoded data.
func TestUserDataLimit_LeavesRoomForBase64(t *testing.T) {
	t.Parallel()
	for kind, most := range map[string]int{"OCICluster": 32_000, "OpenStackCluster": 65_535, "AzureCluster": 87_380} {
		limit := infrastructure.Of(kind).UserData
		if encoded := func(n int) int { return (n + 2) / 3 * 4 }; encoded(limit) > most || encoded(limit+1) <= most {
			t.Errorf("%s takes %d bytes, which are %d encoded, of %d", kind, limit, encoded(limit), most)
		}
	}
	if got := infrastructure.Of("DockerCluster").UserData; got != 0 {
		t.Errorf("DockerCluster takes %d bytes", got)
	}
}
