package infrastructure

// UserDataLimit returns how many bytes of user data Machines from a machine template or pool may have, by the limit of
// EC2; 0 if EC2 gets it compressed, from Secrets Manager or from S3, or if it is not of EC2. All other limits are facts
// of the Cluster.
func UserDataLimit(kind string, object map[string]any) int {
	spec, _ := object["spec"].(map[string]any)
	switch kind {
	case "AWSMachinePool", "AWSManagedMachinePool": // a launch template, which is not compressed
	case "AWSMachineTemplate":
		template, _ := spec["template"].(map[string]any)
		spec, _ = template["spec"].(map[string]any)
		cloudInit, _ := spec["cloudInit"].(map[string]any)
		raw := cloudInit["insecureSkipSecretsManager"] == true && spec["uncompressedUserData"] != false
		if spec["ignition"] == nil && !raw {
			return 0
		}
	default:
		return 0
	}
	if ignition, found := spec["ignition"].(map[string]any); found && ignition["storageType"] != "UnencryptedUserData" {
		return 0
	}
	return 16_384
}
