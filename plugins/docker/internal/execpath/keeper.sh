# What the kept shell can do that looks after commands. Each run has its name in the
# environment of what it started.

# marked tells which processes have the variable $1 in their environment.
marked() {
	if command -v grep >/dev/null; then
		grep -lszFx "$1" /proc/[0-9]*/environ
		return
	fi
	for f in /proc/[0-9]*/environ; do
		e=
		{ while IFS= read -r l || [ -n "$l" ]; do e=$e$l; l=; done <"$f"; } 2>/dev/null
		case $e in *"$1"*) printf '%s\n' "$f" ;; esac
	done
}

# processes tells all there are, and which of them have the variable $1.
processes() {
	cat /proc/[0-9]*/stat 2>/dev/null
	echo
	marked "$1"
	:
}

forget() {
	r=
	for i in $runs; do
		[ "$i" = "$1" ] || r="$r $i"
	done
	runs=$r
}

# reap stops all of $runs: TERM, two seconds later KILL until nothing is left.
reap() {
	signal=TERM
	for round in 1 2 3 4 5 6 7 8 9 10; do
		pids=
		for i in $runs; do
			for f in $(marked "$variable=$i"); do
				p=${f#/proc/}
				pids="$pids ${p%/*}"
			done
		done
		[ -n "$pids" ] || return
		for p in $pids; do
			kill -$signal "-$p" 2>/dev/null
			kill -$signal "$p" 2>/dev/null
		done
		[ $signal = KILL ] || sleep 2
		signal=KILL
		[ "$round" -lt 3 ] || sleep 1
	done
}
