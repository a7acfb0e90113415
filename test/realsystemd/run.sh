# Runs a real systemd manager that cannot see or touch that of the host.
#
#   unshare --mount --propagation private sh run.sh FOLDER
#
# FOLDER/root is copied over /, FOLDER/unit names the service to start.
# REALSYSTEMD_BINARY and REALSYSTEMD_UNIT_PATH are set by the caller.
#
# A manager moves all processes of the cgroup that it finds itself in.
# So this makes a child cgroup, enters it, and there starts a second stage in
# cgroup, PID and mount namespaces of its own, where the child cgroup is all
# there is. Everything it mounts and starts ends with these namespaces.
set -eu
if [ "${2:-}" = inner ]; then
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	umount /run/cgroup
	for folder in /etc /usr/local/lib /usr/lib/systemd/system /usr/lib/systemd/user-environment-generators; do
		[ ! -d "$folder" ] || mount -t tmpfs -o mode=0755 tmpfs "$folder"
	done
	# A manager logs to a terminal or to /dev/kmsg. The latter becomes a file.
	if [ -e /dev/kmsg ]; then
		: >"$1/log"
		mount --bind "$1/log" /dev/kmsg
	fi
	mkdir -p /run/systemd/system /run/user/0
	cp -R "$1/root/." /
	read -r unit <"$1/unit"
	env -i PATH=/usr/bin:/bin HOME=/ XDG_RUNTIME_DIR=/run/user/0 \
		SYSTEMD_LOG_TARGET=kmsg SYSTEMD_UNIT_PATH="$REALSYSTEMD_UNIT_PATH" \
		timeout -k 2 20 "$REALSYSTEMD_BINARY" --user "--unit=$unit"
	exit
fi
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/cgroup
mount -t cgroup2 cgroup2 /run/cgroup
cgroup=/run/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/realsystemd.$$
mkdir "$cgroup"
trap 'find "$cgroup" -depth -type d -exec rmdir {} +' EXIT
sh -c 'echo $$ >"$1/cgroup.procs" &&
	exec unshare --cgroup --pid --fork --kill-child --mount --mount-proc sh "$2" "$3" inner' sh "$cgroup" "$0" "$1"
