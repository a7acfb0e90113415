# Is the network around a machine: a bridge for machines, proxies on it, and behind them an outside with a registry.
#
#   unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private sh lab.sh FOLDER
#
# The bridge is br0, 10.77.0.1/24. The outside is a network namespace of its own, 203.0.113.10, which proxies reach and
# machines do not: nothing is forwarded.
#
# FOLDER holds a folder for each service: a file kind (proxy or registry), port, and what the kind needs (see below).
# Standard input gives orders, each of which is answered by one line, "ok" or what is wrong:
#
#   start NAME      returns when the service accepts connections
#   stop NAME       returns when it has ended
#
# When standard input is closed, everything ends: this is the first process of its namespace.
set -eu
folder=$1
mount -t tmpfs -o mode=0755 tmpfs /run
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
ip link add br0 type bridge
ip address add 10.77.0.1/24 dev br0
ip link set br0 up
ip netns add outside
ip link add outside type veth peer name eth0 netns outside
ip address add 203.0.113.1/24 dev outside
ip link set outside up
ip -n outside address add 203.0.113.10/24 dev eth0
ip -n outside link set eth0 up
ip -n outside link set lo up

# proxy runs squid in the root file system $folder/squid, with $folder/NAME as /work: squid.conf, ca.pem if it is to
# intercept TLS, and its logs.
proxy() {
	root=/run/proxy.$1
	mkdir -p "$root"
	if ! mountpoint -q "$root"; then
		mount --bind "$folder/squid" "$root"
		mount -t tmpfs tmpfs "$root/run"
		mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
		mount --bind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		mount --bind /proc "$root/proc"
		mount --bind "$folder/$1" "$root/work"
		chown -R 13:13 "$root/work"
	fi
	if [ -e "$root/work/ca.pem" ] && ! [ -e "$root/work/certificates" ]; then
		chroot --userspec=13:13 "$root" /usr/lib/squid/security_file_certgen -c -s /work/certificates -M 4MB
	fi
	exec chroot "$root" /usr/sbin/squid -N -f /work/squid.conf
}

# registry runs the program in $folder/NAME: registry, server.pem, server.key, images.json.
registry() {
	cd "$folder/$1"
	exec ip netns exec outside ./registry "203.0.113.10:$(cat port)" server.pem server.key images.json >access.log
}

listens() {
	case $(cat "$folder/$1/kind") in
	proxy) [ -n "$(ss -Hltn "sport = :$(cat "$folder/$1/port")")" ] ;;
	registry) grep -qx ready "$folder/$1/access.log" 2>/dev/null ;;
	esac
}

start() {
	"$(cat "$folder/$1/kind")" "$1" </dev/null >>"$folder/$1/log" 2>&1 &
	echo $! >"$folder/$1/pid"
	tries=0
	until listens "$1"; do
		kill -0 "$(cat "$folder/$1/pid")" 2>/dev/null || return 1
		[ $((tries += 1)) -lt 300 ] || return 1
		sleep 0.1
	done
}

stop() {
	pid=$(cat "$folder/$1/pid")
	kill "$pid"
	wait "$pid" || true
}

while read -r verb name; do
	if "$verb" "$name" 2>>"$folder/log"; then
		echo ok
	else
		echo "cannot $verb $name"
	fi
done
