# See node-kernel.service.
set -eu
for hierarchy in /sys/fs/cgroup/*/; do
	mount -o remount,bind,rw "$hierarchy" # this mount, not the hierarchy of the host
done
# kubelet watches the kernel's log for processes that were killed. There is none here, and no message of the host's.
[ -e /dev/kmsg ] || ln -s null /dev/kmsg
mkdir -p /run/node-kernel
while read -r setting value; do
	echo "$value" >"/run/node-kernel/${setting##*/}"
	mount --bind "/run/node-kernel/${setting##*/}" "/proc/sys/$setting"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
