#!/bin/sh
# Managed by capi-proxy-patcher
#
# Prepares this node for its proxy. Called from preKubeadmCommands:
#   setup.sh install-ca          trust the certificates of trusted-ca.pem
#   setup.sh daemon-reload       make systemd read the http-proxy.conf drop-ins
#   setup.sh restart-containerd  restart containerd and wait until it answers
# Exit status: 0 done or nothing to do, 1 failed (a line says why), 2 usage.
#
# There is no dollar sign before a brace in it: clusterctl and Flux take that
# for a variable of theirs.
#
# For tests: CAPI_PROXY_PATCHER_ROOT is put before every path,
# CAPI_PROXY_PATCHER_WAIT is the longest wait for systemd and containerd, in seconds.

root=$CAPI_PROXY_PATCHER_ROOT
bundle=$root/etc/capi-proxy-patcher/trusted-ca.pem
old=$root/etc/capi-proxy-patcher/removed-certificates
wait=$CAPI_PROXY_PATCHER_WAIT
case $wait in '' | 0* | *[!0-9]*) wait=60 ;; esac
probe=5
[ "$wait" -ge "$probe" ] || probe=$wait
[ -n "$PATH" ] || PATH=/usr/bin:/bin
PATH=$PATH:$root/usr/local/sbin:$root/usr/sbin:$root/usr/bin:$root/sbin:$root/bin
umask 022
nl='
'

say() { printf 'capi-proxy-patcher: %s\n' "$1"; }

die() {
	say "$1" >&2
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# clock sets now to the seconds since boot, which nothing sets back.
clock() {
	IFS=. read -r now _ </proc/uptime
}

# bounded SECONDS COMMAND... runs a command for at most SECONDS.
bounded() {
	limit=$1
	shift
	if has timeout; then
		timeout -s KILL "$limit" "$@"
		return
	fi
	"$@" &
	pid=$!
	clock
	end=$((now + limit))
	while kill -0 "$pid" 2>/dev/null; do
		clock
		if [ "$now" -ge "$end" ]; then
			kill -9 "$pid"
			break
		fi
		sleep 1
	done
	wait "$pid" 2>/dev/null
}

# quiet COMMAND... prints what the command printed, but only if it fails.
quiet() {
	out=$("$@" 2>&1) && return
	printf '%s\n' "$out" | while IFS= read -r line; do
		[ -z "$line" ] || say "$line"
	done >&2
	return 1
}

# split [PREFIX SUFFIX] counts the certificates of the bundle in count and
# writes each to its own file. It fails if one has no beginning or no end.
split() {
	count=0
	cert=
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in
		'-----BEGIN CERTIFICATE-----'*)
			[ -z "$cert" ] || return 1
			cert=$line$nl
			;;
		'-----END CERTIFICATE-----'*)
			[ -n "$cert" ] || return 1
			count=$((count + 1))
			if [ -n "$1" ]; then
				{ printf '%s%s\n' "$cert" "$line" >"$1$count.$2"; } 2>/dev/null || die "cannot write $1$count.$2"
			fi
			cert=
			;;
		*) [ -z "$cert" ] || cert=$cert$line$nl ;;
		esac
	done <"$bundle"
	[ -z "$cert" ]
}

# family ID sets where an operating system keeps its own trusted certificates
# and what command reads them; it fails if it does not know the system.
family() {
	ext=crt
	case $1 in
	debian | ubuntu)
		dir=/usr/local/share/ca-certificates
		# Without --fresh it does not see that a file has changed.
		update='update-ca-certificates --fresh'
		;;
	rhel | fedora | centos | rocky | almalinux | ol | amzn | mariner | azurelinux)
		dir=/etc/pki/ca-trust/source/anchors
		update='update-ca-trust extract'
		;;
	suse | sles | sle-micro | sl-micro | opensuse*)
		dir=/etc/pki/trust/anchors
		update='update-ca-certificates'
		;;
	photon)
		dir=/etc/ssl/certs
		ext=pem
		update='rehash_ca_certificates.sh'
		;;
	flatcar)
		dir=/etc/ssl/certs
		ext=pem
		update='update-ca-certificates'
		;;
	*) return 1 ;;
	esac
}

# detect chooses the family: by name, else by the commands that there are. It
# fails if it knows neither; ids is then what the system calls itself.
detect() {
	for file in /etc/os-release /usr/lib/os-release; do
		[ -r "$root$file" ] || continue
		# shellcheck disable=SC1090,SC2086 # not known here; words
		ids=$(ID='' ID_LIKE='' && . "$root$file" >/dev/null 2>&1 && set -- $ID $ID_LIKE && printf '%s' "$*")
		for id in $ids; do
			family "$id" && return
		done
		break
	done
	[ -n "$ids" ] || ids='no os-release'
	if has update-ca-trust; then
		family rhel
	elif has rehash_ca_certificates.sh; then
		family photon
	elif has update-ca-certificates && [ -d "$root/etc/pki/trust/anchors" ]; then
		family suse
	elif has update-ca-certificates; then
		family debian
	else
		return 1
	fi
}

install_ca() {
	[ -r "$bundle" ] || die "cannot read $bundle"
	split || die "$bundle: certificate $((count + 1)) has no beginning or no end"
	total=$count
	nothing="no certificates in $bundle, nothing to install"
	if ! detect; then
		[ "$total" -gt 0 ] || { say "$nothing"; return; }
		die "do not know how to trust certificates on this system ($ids): use a supported image, or leave trust out of the annotation capi-proxy-patcher.io/targets"
	fi
	prefix=$root$dir/capi-proxy-patcher-
	[ "$total" -eq 0 ] || mkdir -p "$root$dir" 2>/dev/null || die "cannot create $root$dir"
	split "$prefix" "$ext"
	# Those of an earlier bundle are kept aside until nothing trusts them: if that
	# fails, the next run knows of them.
	for file in "$prefix"*."$ext"; do
		case $file in "$prefix"*[!0-9]*."$ext") continue ;; esac
		number=1
		while [ "$number" -le "$total" ] && [ "$file" != "$prefix$number.$ext" ]; do
			number=$((number + 1))
		done
		[ "$number" -le "$total" ] || { mkdir -p "$old" && mv -f "$file" "$old"; } 2>/dev/null || die "cannot remove $file"
	done
	[ "$total" -gt 0 ] || [ -d "$old" ] || { say "$nothing"; return; }
	# shellcheck disable=SC2086 # a command and its argument
	set -- $update
	has "$1" || die "$1 not found: add it to the image, or leave trust out of the annotation capi-proxy-patcher.io/targets"
	quiet "$@" || die "$update does not work here: see the lines above"
	rm -rf "$old" 2>/dev/null || die "cannot remove $old"
	say "trusting $total certificates in $root$dir"
}

daemon_reload() {
	quiet bounded "$wait" systemctl daemon-reload || die "systemctl daemon-reload does not work: containerd and kubelet would start without the proxy"
}

# answers reports whether containerd answers.
answers() {
	socket=/run/containerd/containerd.sock
	{
		if has crictl && bounded "$probe" crictl --runtime-endpoint "unix://$socket" info; then
			return
		fi
		# It does not answer while the CRI plugin is switched off.
		if has ctr; then
			bounded "$probe" ctr --address "$socket" version
		elif has crictl; then
			return 1
		else
			bounded "$probe" systemctl is-active --quiet containerd
		fi
	} >/dev/null 2>&1
}

restart_containerd() {
	state=$(bounded "$wait" systemctl is-active containerd 2>/dev/null)
	case $state in
	active | activating | reloading) ;;
	*)
		[ -n "$state" ] || state=unknown
		say "containerd is not running ($state), nothing to restart"
		return
		;;
	esac
	clock
	deadline=$((now + wait))
	quiet bounded "$wait" systemctl restart containerd || die "containerd did not restart: see journalctl -u containerd"
	until answers; do
		clock
		[ "$now" -lt "$deadline" ] || die "containerd does not answer $wait s after its restart: see journalctl -u containerd"
		sleep 1
	done
	say "containerd restarted and answers"
}

case $1 in
install-ca) install_ca ;;
daemon-reload) daemon_reload ;;
restart-containerd) restart_containerd ;;
*)
	say "usage: setup.sh install-ca | daemon-reload | restart-containerd" >&2
	exit 2
	;;
esac
