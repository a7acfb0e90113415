package realsystemd_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

// Templates for Flatcar let kubeadm.service require containerd. A plain restart of containerd would stop and start it,
// with the script that it runs, again and again: the node would never join.
func TestStart_OfKubeadmThatNeedsContainerd(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Requires", "BindsTo", "PartOf"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			got := realsystemd.Start(t, "kubeadm", map[string][]byte{
				"/etc/systemd/system/containerd.service": []byte("[Unit]\nDefaultDependencies=no\n" +
					"[Service]\nExecStartPre=/bin/sh -c 'mkdir /run/once || mkdir /run/twice'\nExecStart=/bin/sleep 60\n"),
				systemd.DropInPath("containerd"): []byte("[Service]\n"),
				contract.PathSetup:               []byte(patch.Setup()),
				// The manager of a test is that of a user.
				"/run/systemctl": []byte("#!/bin/sh\nexec /usr/bin/systemctl --user \"$@\"\n"),
				"/etc/systemd/system/kubeadm.service.d/10-flatcar.conf": []byte("[Unit]\n" +
					kind + "=containerd.service\nWants=containerd.service\nAfter=containerd.service\n" +
					"[Service]\nEnvironment=PATH=/run/bin:/usr/bin:/bin\n" +
					"ExecStartPre=/usr/bin/install -D -m 755 /run/systemctl /run/bin/systemctl\n" +
					"ExecStartPre=/bin/sh " + contract.PathSetup + "\n" +
					"ExecStartPre=/usr/bin/test -d /run/twice\n"),
			})
			if !got.Started {
				t.Errorf("kubeadm did not run, or containerd did not start twice:\n%s", got.Log)
			}
		})
	}
}
