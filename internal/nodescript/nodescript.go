// Package nodescript holds the one script that runs on a node.
//
// The script trusts the certificates of a bundle, reloads systemd and
// restarts containerd, each as a verb of its own, so that the commands in a
// bootstrap spec stay short and constant:
//
//	sh /etc/capi-proxy-patcher/setup.sh install-ca || exit 1
//
// It is written for POSIX sh and runs unchanged in dash, bash and busybox
// sh. It knows the trust stores of Debian and Ubuntu, of RHEL, Fedora, Rocky,
// Alma, Oracle, Amazon and Azure Linux, of SUSE, of Photon and of Flatcar.
package nodescript

import (
	_ "embed"
)

const (
	// Path is the path of the script on a node, with mode 0755.
	Path = "/etc/capi-proxy-patcher/setup.sh"
	// TrustedCAPath is the bundle of PEM certificates that the verb
	// install-ca reads. A bundle without any certificate is allowed.
	TrustedCAPath = "/etc/capi-proxy-patcher/trusted-ca.pem"
)

//go:embed setup.sh
var setup string

// Setup returns the script. It is ASCII, shorter than the 10,240 characters that Cluster API allows for one file of a
// bootstrap spec, and has nothing that cloud-init would read as a template.
func Setup() string {
	return setup
}
