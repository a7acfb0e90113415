# This part is after setup.sh where a proxy Secret has readinessEndpoints, and
# after a line with scheme and host of each: endpoints='https://one https://two'
# Of what curl prints, the second number is the status of a proxy for a connection.
(
	set -af
	eval "$(cd $folder && cat proxy.env node.env)"
	failed=0
	for endpoint in $endpoints; do
		# shellcheck disable=SC2046 # words
		set -- $(curl -qgs -m 5 -o /dev/null -w '%{http_code} %{http_connect} ' "$endpoint/"; echo $?)
		case $* in
		407*\ 0 | 5*\ 0) why="status $1" ;;
		*\ 0) continue ;;
		???\ [345]*) why="status $2 of the proxy" ;;
		*\ [56]) why='no address for its name, or that of the proxy' ;;
		*\ 7) why='no connection' ;;
		*\ 28) why='no answer in 5 s' ;;
		*\ 60) why='certificate not trusted' ;;
		*) why='curl failed' ;;
		esac
		say "readiness endpoint $endpoint does not answer: $why"
		failed=$((failed + 1))
		[ "$failed" -lt 3 ] || break
	done
	[ "$failed" -gt 0 ] || echo 'capi-proxy-patcher: readiness endpoints answer'
)
