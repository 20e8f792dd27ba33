# Runs the command "$@" with its streams kept in the folder $_b_d. Set before:
# _b_d, _b_w (where it starts), _b_run (the run's name), _b_nap (a short sleep),
# _b_enc and _b_dec (how bytes are written and read as text), _b_reads (how much is
# read at once, in 64 KiB), _b_in (1: stdin), _b_old (runs whose results have arrived),
# and the function _b_env, which sets the command's variables.

# Reads stream $1 from its pipe into segments, two of which may wait to be taken.
# When the folder is gone, what still comes is dropped for as long as anything has
# the pipe (contract C8).
_b_collect() {
	_b_n=100000 _b_t=0
	while [ -d "$_b_d" ]; do
		_b_r=$(LC_ALL=C dd bs=65536 count="$_b_reads" 2>&1 >>"$_b_d/$1.$_b_n") || { [ ! -d "$_b_d" ] || echo "$_b_r" >"$_b_d/$1.lost"; break; }
		# Of "F+P records in", "… records out" and "N bytes …", whatever warning precedes.
		_b_c=${_b_r%% records in*} _b_c=${_b_c##*[!0-9+]}
		set -- "$1" ${_b_r#* records out}
		if [ $((${_b_c%+*} + ${_b_c#*+})) -lt "$_b_reads" ]; then
			echo >"$_b_d/$1.end"
			return
		fi
		_b_t=$((_b_t + ${2:-524288}))
		[ "$_b_t" -ge $((_b_reads * 65536)) ] || continue
		_b_n=$((_b_n + 1)) _b_t=0
		while [ -e "$_b_d/$1.$((_b_n - 2))" ]; do sleep "$_b_nap"; done
	done
	exec cat >/dev/null
}

# Writes what comes in pieces i.N to the command's stdin.
_b_feed() {
	_b_n=100000
	while [ -d "$_b_d" ]; do
		_b_c=
		[ ! -e "$_b_d/i.end" ] || _b_c=1
		if [ -e "$_b_d/i.$_b_n" ]; then
			cat "$_b_d/i.$_b_n" || { echo >"$_b_d/i.closed"; break; }
			rm -f "$_b_d/i.$_b_n"
			_b_n=$((_b_n + 1))
		elif [ -n "$_b_c" ]; then
			break
		else
			sleep "$_b_nap"
		fi
	done >"$_b_d/i"
}

# Stops the command when nobody has asked for it for ten seconds: whoever did is
# dead (contract B3).
_b_watch() {
	_b_l='' _b_i=0
	while sleep 1; do
		[ -d "$_b_d" ] || return
		_b_c=
		read -r _b_c <"$_b_d/lease"
		if [ "$_b_c" = "$_b_l" ]; then _b_i=$((_b_i + 1)); else _b_l=$_b_c _b_i=0; fi
		[ "$_b_i" -lt 9 ] || break
	done
	echo >"$_b_d/unwatched" # of which its request may still tell
	_b_stop "$_b_run" "$_b_d" 200
	rm -rf "$_b_d"
	kill "$1"
}

# Reports whether stream $1 was read as far as it was written when the command ended.
_b_whole() {
	[ ! -e "$_b_d/$1.end" ] && [ ! -e "$_b_d/$1.lost" ] || return 0
	[ "$_b_i" -gt 6 ] && grep -qF "berth-end-$_b_run" "$_b_d/$1".1????? 2>/dev/null
}

# Says that there is no room for the command's streams.
_b_refuse() {
	echo '!folder'
	echo =not
	rm -rf "$_b_d"
	exit 0
}

_b_sweep "${_b_d%/*}" "$_b_old"
if ! cd -P "$_b_w" 2>/dev/null; then
	_b_r=$(LC_ALL=C ls -d "$_b_w/." 2>&1)
	_b_keep "${_b_d%/*}" "$_b_run"
	mkdir -m 700 "$_b_k" && echo "${_b_r##*: }" >"$_b_k/dir"
	echo "!dir ${_b_r##*: }"
	echo =not
	exit 0
fi
if ! mkdir -m 700 "$_b_d"; then
	# Stopped before it began, or there is no room.
	if [ -e "$_b_d/stopped" ]; then _b_refuse; fi
	echo '!folder'
	echo =not
	exit 0
fi
# A file system that is full takes names, and nothing in them. A little of this is kept
# for the exit code of a command that fills it.
if ! dd if=/dev/zero bs=65536 count=4 2>/dev/null >"$_b_d/room"; then
	echo '!room'
	_b_refuse
fi
printf '%4096s' x >"$_b_d/room"
if [ -n "$_b_in" ]; then
	mkfifo "$_b_d/o" "$_b_d/e" "$_b_d/i" || _b_refuse
	if [ -n "${_BERTH_I0+x}" ]; then
		printf '%s' "$_BERTH_I0$_BERTH_I1$_BERTH_I2$_BERTH_I3$_BERTH_I4$_BERTH_I5$_BERTH_I6$_BERTH_I7" | $_b_dec >"$_b_d/i.100000"
		echo >"$_b_d/i.end"
	fi
	unset _BERTH_I0 _BERTH_I1 _BERTH_I2 _BERTH_I3 _BERTH_I4 _BERTH_I5 _BERTH_I6 _BERTH_I7
	(_b_feed) >/dev/null 2>&1 &
	_b_fp=$!
else
	mkfifo "$_b_d/o" "$_b_d/e" || _b_refuse
	_b_fp=
fi
# In subshells: a shell keeps what it redirects for a function, and so the stream of
# this script, whose end the service waits for.
(_b_collect o) <"$_b_d/o" >/dev/null 2>&1 &
_b_c=$!
(_b_collect e) <"$_b_d/e" >/dev/null 2>&1 &
_b_r=$!
(_b_watch $$) >/dev/null 2>&1 </dev/null &
_b_wp=$!
echo "$$ $PPID $_b_c $_b_r $_b_wp $_b_fp" >"$_b_d/ours"
if [ -n "$_b_in" ]; then _b_src=$_b_d/i; else _b_src=/dev/null; fi
(
	read -r _b_c _b_r </proc/self/stat
	echo "$_b_c" >"$_b_d/pid"
	_b_env "$@"
) >"$_b_d/o" 2>"$_b_d/e" <"$_b_src"
_b_s=$?
: >"$_b_d/room"
echo "$_b_s" >"$_b_d/exit"
_b_i=0
until _b_whole o && _b_whole e; do
	[ -d "$_b_d" ] || exit 0 # it was finished from outside
	_b_i=$((_b_i + 1))
	# Something else has the pipe still: what comes after this mark is not the
	# command's. Opened for both ways, which never waits for a reader.
	if [ "$_b_i" = 6 ]; then
		for _b_c in o e; do
			[ -e "$_b_d/$_b_c.end" ] || printf '\036\nberth-end-%s' "$_b_run" 1<>"$_b_d/$_b_c"
		done
	fi
	[ "$_b_i" = 1 ] || sleep "$_b_nap"
done
kill "$_b_wp" $_b_fp 2>/dev/null
# What still writes is not heard any more: under its old name the folder is gone.
_b_keep "${_b_d%/*}" "$_b_run"
mv "$_b_d" "$_b_k" && _b_result "$_b_k"
exit 0
