# This part is after setup.sh where a proxy Secret has readinessEndpoints, and after
# a line with scheme and host of each. restart-containerd asks them, because the
# node has variables and certificates then, and the user's commands come next.
# Its status is that of what ran before: last.
[ "$1" = restart-containerd ] || exit "$last"

# report says a line in the log and on the console, which may block.
report() {
	say "$1"
	console=$root/dev/console
	# shellcheck disable=SC2016 # for the other shell
	[ ! -w "$console" ] || bounded "$probe" sh -c 'echo "$1" >>"$2"' sh "$(say "$1")" "$console" 2>/dev/null
}

# ask sets why to the reason that an endpoint does not answer, or to nothing. Of
# what curl prints, the second number is the status of a proxy for a connection.
ask() {
	# shellcheck disable=SC2046 # words
	set -- $(bounded "$((probe + 1))" curl -qgs -m "$probe" -o /dev/null -w '%{http_code} %{http_connect} ' "$1/" 2>/dev/null; echo $?)
	case $* in
	407*\ 0 | 5*\ 0) why="status $1" ;;
	*\ 0) why= ;;
	???\ [345]*) why="status $2 of the proxy" ;;
	*\ [56]) why='no address for its name, or that of the proxy' ;;
	*\ 7) why='no connection' ;;
	*\ 60) why='certificate not trusted' ;;
	*28 | 137) why="no answer in $probe s" ;;
	*) why='curl failed' ;;
	esac
}

# ask_endpoints only reports, and ends: a registry that is away keeps no node
# from booting.
ask_endpoints() (
	[ -r "$env" ] || return 0
	has curl || { say 'readiness endpoints are not asked: curl not found'; return; }
	set -f
	eval "$(export_variables)"
	clock
	deadline=$((now + 3 * probe))
	failed=
	for endpoint in $endpoints; do
		clock
		[ "$now" -lt "$deadline" ] || { report 'further readiness endpoints are not asked'; return; }
		ask "$endpoint"
		[ -z "$why" ] || { failed=1; report "readiness endpoint $endpoint does not answer: $why"; }
	done
	[ -n "$failed" ] || report 'readiness endpoints answer'
)

ask_endpoints || :
