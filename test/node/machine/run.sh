# Boots a folder with systemd-nspawn so that the machine can neither see nor touch what runs outside of it.
#
#   unshare --mount --propagation private sh run.sh FOLDER boot|attempt
#
# An attempt makes the namespaces, cgroups and mounts, and boots nothing.
#
# FOLDER holds:
#   lower           the root file system, or a link to it; it is not written to
#   upper, work     what the machine changes; kept for its next boot
#   seed            copied over the root before the first boot, modes included
#   remove          paths to remove before the first boot, one per line
#   containerd      becomes /var/lib/containerd: its snapshotter cannot work on top of an overlay
#   ignition        if there, a program that applies FOLDER/config.ign before the first boot
#   network         if there, the machine's interface: NAMESPACE BRIDGE ADDRESS/LENGTH GATEWAY, the first a path
#   containers      if there, the machine may run containers with limits
#   binds           files of the host that it sees for reading only, one SOURCE:PATH per line
#   name            the name of the machine's cgroups
#   log             what is printed here and on the console
#
# Standard input is a lifeline: when it is closed, the machine is killed.
#
# A system manager moves and kills all processes of the cgroup that it finds itself in, and a first process takes
# everything with it when it ends. So this makes a child cgroup in every hierarchy, enters all of them, and there starts a
# second stage in cgroup, PID, network and mount namespaces of its own, where the child cgroup is all there is.
# Everything that is mounted and started ends with these namespaces.
set -eu
folder=$1 verb=$2
root=/run/root

prepare() {
	(cd "$folder/seed" && tar -cf - .) | tar --keep-directory-symlink -xpf - -C "$root"
	while IFS= read -r path; do
		rm -rf "${root:?}$path"
	done <"$folder/remove"
	if [ -x "$folder/ignition" ]; then
		IGNITION_CONFIG_FILE=$folder/config.ign "$folder/ignition" -oem file -stage files -root "$root" \
			-log-to-stdout -config-cache "$folder/config.cache"
	fi
}

# connect makes the interface, one end of a pair whose other end is on a bridge in the namespace /run/netns/peer.
connect() {
	read -r _ bridge address gateway <"$folder/network"
	peer=m${address%/*}
	ip link add eth0 type veth peer name "$peer" netns peer
	nsenter --net=/run/netns/peer ip link set "$peer" master "$bridge" up
	ip address add "$address" dev eth0
	ip link set eth0 up
	ip route add default via "$gateway"
}

# legacy_cgroups mounts every hierarchy, as they are on the host, but that the machine's own cgroup is all there is.
legacy_cgroups() {
	mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
	while IFS=: read -r _ controllers _; do
		case $controllers in
		'') at=/sys/fs/cgroup/unified type=cgroup2 options=nosuid ;;
		name=*) at=/sys/fs/cgroup/${controllers#name=} type=cgroup options=none,$controllers ;;
		*) at=/sys/fs/cgroup/$controllers type=cgroup options=$controllers ;;
		esac
		mkdir "$at"
		mount -t "$type" -o "$options" "$type" "$at"
	done </proc/self/cgroup
}

if [ "${3:-}" = inner ]; then
	ip link set lo up
	[ ! -e "$folder/network" ] || connect
	set --
	if [ -e "$folder/containers" ]; then
		legacy_cgroups
		# kubeadm asks for it, and the value is that of this network namespace.
		echo 1 >/proc/sys/net/ipv4/ip_forward
		export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
		set -- --capability=CAP_NET_ADMIN
	else
		# The machine gets the unified hierarchy, whatever the host has beside it.
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
	fi
	while IFS= read -r bind; do
		set -- "$@" --bind-ro="$bind"
	done <"$folder/binds"
	# Under names without a comma or colon, which mean something in options.
	mkdir "$root" /run/folder /run/lower
	mount --bind "$folder" /run/folder
	mount --bind "$folder/lower" /run/lower
	mount -t overlay -o lowerdir=/run/lower,upperdir=/run/folder/upper,workdir=/run/folder/work overlay "$root"
	[ "$verb" = boot ] || exit 0
	if [ ! -e "$folder/prepared" ]; then
		prepare
		: >"$folder/prepared"
	fi
	# Without a name service of the host and without writing to its kernel: /proc/sys and /sys stay read-only.
	env -i PATH="$PATH" LANG=C SYSTEMD_SECCOMP=0 ${SYSTEMD_NSPAWN_API_VFS_WRITABLE+SYSTEMD_NSPAWN_API_VFS_WRITABLE="$SYSTEMD_NSPAWN_API_VFS_WRITABLE"} \
		systemd-nspawn --quiet --directory="$root" --machine=node --register=no --keep-unit --boot --kill-signal=SIGRTMIN+3 \
		--link-journal=no --resolv-conf=off --timezone=off --console=pipe \
		--bind=/run/folder/containerd:/var/lib/containerd "$@" </dev/null
	exit
fi

exec >>"$folder/log" 2>&1
mount -t tmpfs -o mode=0755 tmpfs /run
name=$(cat "$folder/name")
if [ -e "$folder/network" ]; then
	mkdir /run/netns
	: >/run/netns/peer
	mount --bind "$(cut -d ' ' -f 1 "$folder/network")" /run/netns/peer
fi
cgroups=
# shellcheck disable=SC2317 # called by trap
remove_cgroups() {
	for cgroup in $cgroups; do
		tries=0
		# Empty as soon as the last process of the namespace has been reaped.
		until find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -d "$cgroup" ] || [ "$tries" -ge 50 ]; do
			tries=$((tries + 1))
			sleep 0.1
		done
	done
}
trap remove_cgroups EXIT
while IFS=: read -r id controllers path; do
	hierarchy=/run/cgroup.$id
	mkdir "$hierarchy"
	case $controllers in
	'') mount -t cgroup2 cgroup2 "$hierarchy" ;;
	name=*) mount -t cgroup -o "none,$controllers" cgroup "$hierarchy" ;;
	*) mount -t cgroup -o "$controllers" cgroup "$hierarchy" ;;
	esac
	cgroup=${hierarchy}${path%/}/$name
	mkdir "$cgroup"
	cgroups="$cgroups $cgroup"
	case ,$controllers, in
	*,cpuset,*) # It starts without any.
		cat "$cgroup/../cpuset.cpus" >"$cgroup/cpuset.cpus"
		cat "$cgroup/../cpuset.mems" >"$cgroup/cpuset.mems"
		;;
	esac
done </proc/self/cgroup

# shellcheck disable=SC2086 # a list
sh -c 'script=$1 folder=$2 verb=$3
	shift 3
	for cgroup; do echo $$ >"$cgroup/cgroup.procs"; done
	exec unshare --cgroup --pid --net --fork --kill-child --mount --mount-proc --propagation private sh "$script" "$folder" "$verb" inner' \
	sh "$0" "$folder" "$verb" $cgroups 3<&- </dev/null &
child=$!
exec 3<&0
(cat <&3 >/dev/null && kill -KILL "$child") 2>/dev/null &
lifeline=$!
status=0
wait "$child" || status=$?
kill "$lifeline" 2>/dev/null || true
exit $status
