# The result of a run is kept until it is known to have arrived: the service loses
# answers. It is beside the run's folder, under the name .berth-kept-SECONDS-RUN, which
# tells since when.

# _b_keep TMP RUN sets _b_k to where a result is to be kept.
_b_keep() {
	read -r _b_now _b_c </proc/uptime
	_b_k=$1/.berth-kept-${_b_now%%.*}-$2
}

# _b_kept TMP RUN sets _b_k to where a result is.
_b_kept() {
	for _b_k in "$1"/.berth-kept-*-"$2"; do
		[ ! -e "$_b_k" ] || return 0
	done
	return 1
}

# _b_sweep TMP RUNS removes the results of these runs, which have arrived, and all that
# are five minutes old: who wanted those is dead.
_b_sweep() {
	read -r _b_now _b_c </proc/uptime
	_b_now=${_b_now%%.*} _b_all=
	for _b_f in $2; do _b_all="$_b_all .berth-kept-*-$_b_f"; done
	for _b_f in "$1"/.berth-kept-*; do
		_b_f=${_b_f##*/}
		_b_c=${_b_f#.berth-kept-}
		case $_b_c in *[!0-9a-f-]* | -*) continue ;; esac
		_b_c=${_b_c%%-*}
		if [ "$_b_c" -gt "$_b_now" ] || [ "$_b_c" -lt $((_b_now - 300)) ]; then _b_all="$_b_all $_b_f"; fi
	done 2>/dev/null
	[ -z "$_b_all" ] || (cd "$1" && exec rm -rf $_b_all) 2>/dev/null
}

# _b_result FOLDER tells the result of a command: its output, as far as nobody has taken
# it, and its exit code.
_b_result() {
	if [ -e "$1/dir" ]; then
		read -r _b_c <"$1/dir"
		echo "!dir $_b_c"
		echo =not
		return
	fi
	for _b_f in "$1"/[oe].1?????; do
		[ -s "$_b_f" ] || continue
		echo "@${_b_f##*/}"
		$_b_enc <"$_b_f"
	done
	for _b_f in "$1"/[oe].lost; do
		[ ! -e "$_b_f" ] || { echo '!lost'; cat "$_b_f" >&2; }
	done
	[ ! -e "$1/unwatched" ] || echo '!unwatched'
	read -r _b_c <"$1/exit"
	echo "=$_b_c"
}
