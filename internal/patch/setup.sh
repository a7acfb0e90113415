#!/bin/sh
# Managed by capi-proxy-patcher
#
# Prepares this node for its proxy, by what is in its own folder:
#   setup.sh                node.env, certificates, daemon-reload, restart of containerd
#   setup.sh own-addresses  node.env only, before each start of kubelet
#   setup.sh certificates   the trust store only, for a change in place
# It stops no bootstrap: a problem is a line in the log, on the console and in
# the file problems, which is there only if the last preparation had one. With a
# verb a problem is a line in the log and exit status 1.
#
# There is no dollar sign before a brace in it: clusterctl and Flux take that
# for a variable of theirs. Neither a string nor a here-document goes over lines:
# nodes get it without comments and indentation.

folder=/etc/capi-proxy-patcher
verb=$1
status=0
export LC_ALL=C

say() {
	status=1
	set -- "capi-proxy-patcher: $1"
	echo "$1" >&2
	# kubelet may start every ten seconds; its journal is enough.
	[ -n "$verb" ] || echo "$1" | timeout 5 tee -a $folder/problems /dev/console >/dev/null 2>&1 || :
}

# own_addresses writes node.env: NO_PROXY of proxy.env with the addresses and
# names of this node. It leaves out a word that a client or a shell could take
# for something else, and the addresses of all Services, which kube-ipvs0 has.
own_addresses() {
	own=$(ip -o addr show scope global |
		sed -n '/kube-ipvs0/d;s/^[0-9]*: [^ ]* *inet6* \([0-9a-f.:]*\).*/\1/p' | sed 64q)
	[ -n "$own" ] || say 'NO_PROXY lacks the addresses of this node: ip shows none'
	# shellcheck disable=SC2018,SC2019 # in locale C
	own=$({
		echo "$own"
		cat /proc/sys/kernel/hostname
		RES_OPTIONS='attempts:1 timeout:1' timeout 5 hostname -f
	} 2>/dev/null | tr A-Z a-z | sed -n '/^[0-9a-z][0-9a-z.:-]*$/p' | sort -u | tr '\n' ,)
	# shellcheck disable=SC2015 # any of the three may fail
	new=$(mktemp $folder/n.XXXXXX) &&
		sed -n "1p;/=\"\*\"/d;s/^NO_PROXY=\"/&$own/p;s/^no_proxy=\"/&$own/p" $folder/proxy.env >"$new" &&
		mv -f "$new" $folder/node.env || {
		rm -f "$new"
		say "NO_PROXY lacks the addresses of this node: cannot write node.env"
	}
}

# certificates makes the node trust those of trusted-ca.pem, and no others of ours.
certificates() {
	# The file trusts is there until nothing of ours is in the trust store any more.
	grep -q '^-----BEGIN CERTIFICATE' $folder/trusted-ca.pem 2>/dev/null || [ -e $folder/trusts ] || return
	# The first store whose folder and command there are: RHEL and its kin, Arch,
	# SUSE, Debian and Ubuntu, Photon, Flatcar.
	for store in \
		'crt /etc/pki/ca-trust/source/anchors update-ca-trust' \
		'crt /etc/ca-certificates/trust-source/anchors update-ca-trust' \
		'crt /etc/pki/trust/anchors update-ca-certificates' \
		'crt /usr/local/share/ca-certificates update-ca-certificates --fresh' \
		'pem /etc/ssl/certs rehash_ca_certificates.sh' \
		'pem /etc/ssl/certs update-ca-certificates'; do
		# shellcheck disable=SC2086 # words
		set -- $store
		[ ! -d "$2" ] || ! command -v "$3" >/dev/null || break
		set --
	done
	[ $# -gt 0 ] || {
		say 'certificates are not trusted: this system has no command for it'
		return
	}
	prefix=$2/capi-proxy-patcher-
	suffix=$1
	shift 2
	restart=1
	number=0
	umask 022
	rm -f "$prefix"*
	touch $folder/trusts
	# One file for each: a hash link leads to the first certificate of a file only.
	while IFS= read -r line; do
		case $line in -----BEGIN*) number=$((number + 1)) ;; esac
		[ "$number" = 0 ] || echo "$line" >>"$prefix$number.$suffix" || {
			rm -f "$prefix"*
			say "certificates are not trusted: cannot write $prefix$number.$suffix"
			return
		}
	done <$folder/trusted-ca.pem
	timeout 60 "$@" || {
		say "certificates may not be trusted: $* failed, status $?"
		return
	}
	[ "$number" -gt 0 ] || rm -f $folder/trusts
}

[ -n "$verb" ] || rm -f $folder/problems
[ "$verb" = certificates ] || [ ! -e $folder/proxy.env ] || own_addresses
[ "$verb" != own-addresses ] || exit "$status"
restart=
[ ! -e /etc/systemd/system/containerd.service.d/http-proxy.conf ] || restart=1
certificates
[ -z "$verb" ] || exit "$status"
systemctl daemon-reload || say 'containerd and kubelet may lack the proxy: systemctl daemon-reload failed'
# It is active, activating, reloading or refreshing.
case $restart$(systemctl is-active containerd) in
1[ar]*)
	# Without the mode a kubeadm.service that requires containerd, as on Flatcar, is
	# restarted, too: it runs this script.
	timeout 120 systemctl restart --job-mode=ignore-requirements containerd || say 'containerd did not restart: see journalctl -u containerd'
	;;
esac
