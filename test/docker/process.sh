# Keeps a service that a script of this folder starts by hand: its pid, and when
# that pid was started, since a pid alone is used again, in $state/pid, and what it
# says in $state/log. To be sourced, with state set.

# start COMMAND…: starts it in a session of its own, so that a signal to this
# script's terminal is not the service's, and in a folder of its own: Podman's
# monitors of containers leave files where they are.
start() {
	mkdir -p -m 755 "$state"
	(cd "$state" && exec setsid "$@") >"$state/log" 2>&1 </dev/null &
	pid=$!
	printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$state/pid"
}

started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# ready SECONDS CHECK: waits until the check succeeds, unless the service ends.
ready() {
	for _ in $(seq $(($1 * 5))); do
		"$2" && return 0
		[ -d "/proc/$pid" ] || return 1
		sleep 0.2
	done
	return 1
}

# stop NAME: ends what start started, if it still runs.
stop() {
	[ -e "$state/pid" ] || return 0
	local pid at
	read -r pid at <"$state/pid"
	runs() { [ "$(started_at "$pid")" = "$at" ]; }
	ended() { # ended SECONDS: wait that long
		for _ in $(seq $(($1 * 10))); do
			runs || return 0
			sleep 0.1
		done
		return 1
	}
	if runs; then
		kill -TERM "$pid"
		# An engine gives its containers 15 s to end.
		ended 30 || {
			kill -KILL "$pid"
			ended 5
		}
		echo "$1: stopped (pid $pid)"
	fi
	rm -rf "$state"
}
