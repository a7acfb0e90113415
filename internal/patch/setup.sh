#!/bin/sh
# Managed by capi-proxy-patcher
#
# Prepares this node for its proxy. Called from preKubeadmCommands:
#   setup.sh own-addresses       write node.env: NO_PROXY with this node's own addresses
#   setup.sh export              print what exports the variables of proxy.env and node.env
#   setup.sh refresh-addresses   the same again, after the user's own commands
#   setup.sh install-ca          trust the certificates of trusted-ca.pem
#   setup.sh daemon-reload       make systemd read the http-proxy.conf drop-ins
#   setup.sh restart-containerd  restart containerd and wait until it answers
#   setup.sh unset               print what unsets all *_proxy variables
#   setup.sh unset-userinfo      print what unsets those with a user in their value
# Exit status: 0 done or nothing to do, 1 failed (a line says why), 2 usage.
# What is printed for a shell to evaluate ends in a command that fails if it did
# not do all. If it cannot be printed, nothing is.
#
# There is no dollar sign before a brace in it: clusterctl and Flux take that
# for a variable of theirs.
#
# For tests: CAPI_PROXY_PATCHER_ROOT is put before every path,
# CAPI_PROXY_PATCHER_WAIT is the longest wait for systemd and containerd, in seconds.

root=$CAPI_PROXY_PATCHER_ROOT
folder=$root/etc/capi-proxy-patcher
bundle=$root/etc/capi-proxy-patcher/trusted-ca.pem
env=$folder/proxy.env
node=$folder/node.env
old=$folder/removed-certificates
certs=$root/etc/ssl/certs
links=$certs.capi-proxy-patcher
instead=', or leave trust out of the annotation capi-proxy-patcher.io/targets'
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

# each COMMAND runs a command for each certificate of the bundle, with its text
# in cert and its number in count. It fails if one has no beginning or no end.
each() {
	count=0
	cert=
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in
		'-----BEGIN CERTIFICATE-----'*)
			[ -z "$cert" ] || return 1
			cert="-----BEGIN CERTIFICATE-----$nl"
			;;
		'-----END CERTIFICATE-----'*)
			[ -n "$cert" ] || return 1
			count=$((count + 1))
			cert="$cert-----END CERTIFICATE-----"
			"$1"
			cert=
			;;
		*) [ -z "$cert" ] || cert=$cert$line$nl ;;
		esac
	done <"$bundle"
	[ -z "$cert" ]
}

# write replaces the file of a certificate by a whole one, or not at all.
write() {
	file=$prefix$count.$ext
	new=$prefix$count.new
	{ [ ! -d "$file" ] && printf '%s\n' "$cert" >"$new" && mv -f "$new" "$file"; } 2>/dev/null && return
	rm -f "$new" 2>/dev/null
	die "cannot write $file"
}

# find_trusted counts in found the certificates that are in trusted, and
# collects in missing the numbers of the others.
find_trusted() {
	case $trusted in
	*"$cert"*) found=$((found + 1)) ;;
	*) missing="$missing $count" ;;
	esac
}

# is_trusted reports whether at least one certificate is in a file that programs
# read: a bundle of the system, or what a hash link leads to.
is_trusted() {
	pki=$root/etc/pki
	trusted=$(cat "$certs/ca-certificates.crt" "$pki/tls/certs/ca-bundle.crt" "$root/etc/ssl/ca-bundle.pem" \
		"$pki/ca-trust/extracted/pem/tls-ca-bundle.pem" "$root/var/lib/ca-certificates/ca-bundle.pem" \
		"$root/etc/ssl/cert.pem" "$certs"/????????.[0-9]* 2>/dev/null)
	found=0
	missing=
	each find_trusted
	[ "$total" -eq 0 ] || [ "$found" -gt 0 ]
}

# keep_links copies the links of the trust store, because commands remove all of
# them before they make them again, and stop in between on a full disk.
keep_links() {
	[ ! -L "$certs" ] || return 0
	set --
	for file in "$certs"/*; do
		[ ! -L "$file" ] || set -- "$@" "$file"
	done
	[ $# -gt 0 ] || return 0
	{ mkdir -p "$links" && cp -P "$@" "$links"; } 2>/dev/null && return
	rm -rf "$links" 2>/dev/null
	die "cannot copy the links of $certs to $links: the disk may be full"
}

restore_links() {
	[ -d "$links" ] || return 0
	mv -f "$links"/* "$certs" 2>/dev/null
	rm -rf "$links" 2>/dev/null
}

# writable FOLDER reports whether files can be made in a folder.
writable() {
	{ mkdir -p "$1" && printf '' >"$1/.capi-proxy-patcher" && rm -f "$1/.capi-proxy-patcher"; } 2>/dev/null
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
	arch)
		dir=/etc/ca-certificates/trust-source/anchors
		update='update-ca-trust'
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

# detect chooses the family whose command there is: by name, else by command. It
# fails if it knows neither; ids is then what the system calls itself.
detect() {
	update=
	for file in /etc/os-release /usr/lib/os-release; do
		[ -r "$root$file" ] || continue
		# shellcheck disable=SC1090,SC2086 # not known here; words
		ids=$(ID='' ID_LIKE='' && . "$root$file" >/dev/null 2>&1 && set -- $ID $ID_LIKE && printf '%s' "$*")
		for id in $ids; do
			# shellcheck disable=SC2086 # a command and its argument
			family "$id" && set -- $update && has "$1" && return
		done
		break
	done
	[ -n "$ids" ] || ids='no os-release'
	if has update-ca-trust && [ -d "$root/etc/ca-certificates/trust-source" ]; then
		family arch
	elif has update-ca-trust; then
		family rhel
	elif has rehash_ca_certificates.sh; then
		family photon
	elif has update-ca-certificates && [ -d "$root/etc/pki/trust/anchors" ]; then
		family suse
	elif has update-ca-certificates; then
		family debian
	else
		[ -n "$update" ]
	fi
}

# avoid_usr chooses another folder if nothing below /usr can be written.
avoid_usr() {
	case $dir in /usr/*) ! writable "$root$dir" || return 0 ;; *) return 0 ;; esac
	if [ ! -e "$root/etc/ca-certificates.conf" ]; then
		family flatcar
		return
	fi
	image=$root$dir
	dir=/etc/capi-proxy-patcher/certificates
	# The command reads this folder in place of that of the image, which stays.
	update="update-ca-certificates --fresh --localcertsdir $root$dir"
	[ "$total" -eq 0 ] || [ -L "$root$dir/image" ] ||
		{ mkdir -p "$root$dir" && ln -s "$image" "$root$dir/image"; } 2>/dev/null || die "cannot create $root$dir"
}

install_ca() {
	[ -r "$bundle" ] || die "cannot read $bundle"
	each : || die "$bundle: certificate $((count + 1)) has no beginning or no end"
	total=$count
	nothing="no certificates in $bundle, nothing to install"
	if ! detect; then
		[ "$total" -gt 0 ] || { say "$nothing"; return; }
		die "do not know how to trust certificates on this system ($ids): use a supported image$instead"
	fi
	avoid_usr
	prefix=$root$dir/capi-proxy-patcher-
	restore_links
	[ "$total" -eq 0 ] || mkdir -p "$root$dir" 2>/dev/null || die "cannot create $root$dir"
	each write
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
	# shellcheck disable=SC2086 # a command and its arguments
	set -- $update
	has "$1" || die "$1 not found: add it to the image$instead"
	keep_links
	quiet "$@" || { restore_links; die "$update does not work here: see the lines above"; }
	is_trusted || { restore_links; die "$update has ended, but no bundle of this system has a certificate of $root$dir: use a supported image$instead"; }
	rm -rf "$old" "$links" 2>/dev/null || die "cannot remove $old"
	[ -z "$missing" ] || say "not in a bundle of this system: certificates$missing of $bundle"
	say "trusting $found certificates in $root$dir"
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

# candidates prints what may be addresses and names of this node, one a line.
candidates() {
	if has ip; then
		bounded "$probe" ip -o addr show scope global | while IFS=' /' read -r _ device kind address _; do
			case $device/$kind in
			kube-ipvs0/*) ;; # the addresses of all Services
			*/inet | */inet6) printf '%s\n' "$address" ;;
			esac
		done
	else
		while read -r a b c; do
			case "$a $b $c" in
			'|-- 127.'*) leaf= ;;
			'|-- '*) leaf=$b ;;
			'/32 host LOCAL') printf '%s\n' "$leaf" ;;
			esac
		done <"$root/proc/net/fib_trie"
		quad='\(....\)'
		half=$quad$quad$quad$quad
		sed -n "s/^$half$half [^ ]* [^ ]* 00 .*/\1:\2:\3:\4:\5:\6:\7:\8/p" "$root/proc/net/if_inet6"
	fi
	read -r host <"$root/proc/sys/kernel/hostname" && printf '%s\n' "$host"
	# It asks the DNS if the node itself does not know.
	! has hostname || RES_OPTIONS='attempts:1 timeout:1' bounded "$probe" hostname -f
}

# usable reports whether a word is an address, or a name that no client takes
# for more than itself and the names below it.
usable() {
	case $1 in
	*:*)
		case $1 in
		*[!0-9a-f:]* | *[!:][!:][!:][!:][!:]* | *:::* | *::*::* | *:*:*:*:*:*:*:*:*) return 1 ;;
		*::* | *:*:*:*:*:*:*:*) ;;
		*) return 1 ;;
		esac
		;;
	*[!0-9.]*)
		case $1 in
		*[!0-9a-z.-]* | [.-]* | *[.-] | *..* | *-.* | *.-*) return 1 ;;
		*.* | *[0-9-]*) ;;
		*) return 1 ;; # com would cover a part of the internet
		esac
		;;
	*)
		case $1 in
		.* | *. | *..* | *.*.*.*.* | *[0-9][0-9][0-9][0-9]*) return 1 ;;
		*.*.*.*) ;;
		*) return 1 ;;
		esac
		;;
	esac
}

# quoted sets name and value to those of a line of proxy.env, if it needs no
# decoding.
quoted() {
	case $line in
	*\\* | *\"*\"*\"*) return 1 ;;
	*\"*\") ;;
	*) return 1 ;;
	esac
	IFS='"'
	# shellcheck disable=SC2086 # fields
	set -- $line
	unset IFS
	name=$1
	value=$2
}

# with_own prints a variable, with the own addresses that its value has not.
with_own() {
	[ "$value" = '*' ] || for word in $own; do
		case ,$value, in
		,,) value=$word ;;
		*,"$word",*) ;;
		*) value=$value,$word ;;
		esac
	done
	printf '%s"%s"\n' "$name" "$value"
}

# own_env prints node.env, which is empty without own addresses. Nothing is
# decoded: a value and the addresses are text in the same quotes.
own_env() {
	echo '# Managed by capi-proxy-patcher' || return 1
	[ -n "$own" ] || return 0
	missing='NO_PROXY= no_proxy='
	url=
	while IFS= read -r line; do
		case $line in
		NO_PROXY=* | no_proxy=*)
			missing=
			quoted && with_own || return 1
			;;
		*_PROXY=* | *_proxy=*) url=1 ;;
		esac
	done <"$env"
	[ -n "$url" ] || return 0
	for name in $missing; do
		value=
		with_own || return 1
	done
}

own_addresses() {
	[ -r "$env" ] || die "cannot read $env"
	LC_ALL=C
	set -f
	own=
	seen=
	count=0
	for word in $(candidates 2>/dev/null | tr '[:upper:]' '[:lower:]'); do
		case "$seen " in *" $word "*) continue ;; esac
		seen="$seen $word"
		if ! usable "$word"; then
			say "left out of NO_PROXY: an address or name of this node that clients would misread" >&2
		elif [ "$count" -eq 64 ]; then
			say "left out of NO_PROXY: addresses of this node beyond the first 64" >&2
			break
		else
			count=$((count + 1))
			own="$own $word"
		fi
	done
	umask 077
	new=$node.new
	{
		rm -f "$new"
		# Linux starts no program with a variable of more than 128 KiB.
		{ own_env >"$new" && [ "$(wc -c <"$new")" -lt 262180 ]; } || { own= && own_env >"$new"; } && {
			! has sync || sync "$new"
			mv -f "$new" "$node"
		}
	} 2>/dev/null || die "cannot write $node: requests of this node to its own addresses may go to the proxy"
	case $own in
	*.*.*.* | *:*) say "NO_PROXY of this node has its own addresses and names:$own" ;;
	*) say "cannot add the addresses of this node to NO_PROXY: its requests to them may go to the proxy" >&2 ;;
	esac
}

export_variables() {
	[ -r "$env" ] || die "cannot read $env"
	more=
	[ ! -r "$node" ] || more=" . $node;"
	echo "set -a; . $env;$more set +a"
}

# variables PATTERN prints names of proxy variables of the shell that calls, with
# the pattern in in their value, and one more. It lists them as the kernel has
# them: a shell drops names that are none to it. Newlines in values become dots.
variables() {
	{ cat <&3 && printf '%s_proxy=@\000' capi-proxy-patcher; } | LC_ALL=C tr '\n\000' '.\n' |
		LC_ALL=C sed -n "s/^\($1_[Pp][Rr][Oo][Xx][Yy]\)=$in.*/\1/p"
}

# refreshed sets text to what exports node.env again, which may have more
# addresses now, unless the user has replaced NO_PROXY since.
refreshed() {
	{ [ -r "$env" ] && [ -r "$node" ]; } || return 0
	while IFS= read -r line; do
		case $line in
		NO_PROXY=*)
			quoted || return 0
			case $NO_PROXY, in "$value",*) text=" set -a; . $node; set +a;" ;; esac
			;;
		esac
	done <"$env"
}

# unset_variables prints what unsets them, and looks again. kubeadm copies every
# *_proxy variable, in any spelling, into static Pods and kube-proxy.
unset_variables() {
	text=
	[ -z "$in" ] || refreshed
	for name in $(variables '[A-Za-z0-9_]*'); do
		text="$text command unset $name;"
	done
	echo "$text sh $folder/setup.sh is-$1"
}

is_unset() {
	[ "$(variables '[^=]*')" = capi-proxy-patcher_proxy ] || die "a variable whose name ends in _proxy$1 stays in the environment of kubeadm: take it out of the image or of your commands, or leave $2 out of the annotation capi-proxy-patcher.io/targets"
}

case $1 in
unset | is-unset) in= ;;
unset-userinfo | is-unset-userinfo) in='.*@' ;;
esac
case $1 in
unset* | is-unset*) exec 3</proc/self/environ ;;
esac

case $1 in
own-addresses | refresh-addresses) own_addresses ;;
export) export_variables ;;
install-ca) install_ca ;;
daemon-reload) daemon_reload ;;
restart-containerd) restart_containerd ;;
unset | unset-userinfo) unset_variables "$1" ;;
is-unset) is_unset '' kubeadm ;;
is-unset-userinfo) is_unset ' and that has credentials' static-pods ;;
*)
	say "usage: setup.sh own-addresses | refresh-addresses | export | install-ca | daemon-reload | restart-containerd | unset | unset-userinfo" >&2
	exit 2
	;;
esac
