# _b_look RUN FOLDER finds the processes of a run: its command, whatever has the
# run's mark in its environment or is in the run's session without being ours, and
# all that descends from those or shares a group or session with them. It sets
# _b_in to " pid:start …", and remembers what it has found in _b_known. What an
# environment holds does not tell ours from the command's: a shell that runs its own
# tools without executing anything keeps it.
_b_look() {
	_b_seed=' ' _b_ours=' ' _b_all='' _b_in=' ' _b_sessions=' ' _b_groups=' '
	_b_own='' _b_c=''
	[ ! -r "$2/pid" ] || [ -e "$2/exit" ] || read -r _b_own <"$2/pid"
	[ ! -r "$2/ours" ] || read -r _b_c <"$2/ours"
	for _b_f in $_b_c; do _b_ours="$_b_ours$_b_f "; done
	_b_script=${_b_c%% *}
	if [ -n "$_b_nuls" ]; then
		for _b_f in $(grep -lF "_BERTH_RUN=$1" /proc/[0-9]*/environ 2>/dev/null); do
			_b_f=${_b_f#/proc/}
			_b_seed="$_b_seed${_b_f%/environ} "
		done
	fi
	for _b_f in /proc/[0-9]*/stat; do
		_b_c=
		while read -r _b_r; do _b_c=$_b_c$_b_r; done <"$_b_f" || continue
		[ -n "$_b_c" ] || continue
		_b_pid=${_b_f#/proc/} _b_pid=${_b_pid%/stat}
		set -- "$1" "$2" ${_b_c##*) }
		case $3 in Z | X | x) continue ;; esac
		[ "$_b_pid" != 1 ] || continue
		_b_all="$_b_all $_b_pid:$4:$5:$6:${22}"
		# BusyBox' grep sees nothing behind a NUL: each is looked at once.
		case $_b_nuls$_b_clean in
		1* | *" $_b_pid:${22} "*) ;;
		*)
			if tr '\0' '\n' 2>/dev/null <"/proc/$_b_pid/environ" | grep -qxF "_BERTH_RUN=$1"; then
				_b_seed="$_b_seed$_b_pid "
			else
				_b_clean="$_b_clean$_b_pid:${22} "
			fi
			;;
		esac
		[ "$_b_pid" != "$_b_script" ] || [ "$6" -le 1 ] || _b_sessions=" $6 "
	done
	_b_more=1
	while [ -n "$_b_more" ]; do # what ours have started
		_b_more=
		for _b_f in $_b_all; do
			_b_pid=${_b_f%%:*} _b_r=${_b_f#*:} _b_ppid=${_b_r%%:*}
			[ "$_b_pid" != "$_b_own" ] || continue
			case $_b_ours in *" $_b_pid "*) continue ;; esac
			case $_b_ours in *" $_b_ppid "*) _b_ours="$_b_ours$_b_pid " _b_more=1 ;; esac
		done
	done
	_b_more=1
	while [ -n "$_b_more" ]; do
		_b_more=
		for _b_f in $_b_all; do
			_b_pid=${_b_f%%:*} _b_r=${_b_f#*:}
			_b_start=${_b_r##*:} _b_ppid=${_b_r%%:*} _b_r=${_b_r#*:}
			_b_group=${_b_r%%:*} _b_r=${_b_r#*:} _b_session=${_b_r%%:*}
			case $_b_in in *" $_b_pid:"*) continue ;; esac
			case $_b_ours in *" $_b_pid "*) continue ;; esac
			case "$_b_seed$_b_known $_b_own " in
			*" $_b_pid "* | *" $_b_pid:$_b_start "*) ;;
			*) case $_b_in in *" $_b_ppid:"*) ;; *)
				case $_b_groups in *" $_b_group "*) ;; *)
					case $_b_sessions in *" $_b_session "*) ;; *) continue ;; esac ;;
				esac ;;
			esac ;;
			esac
			_b_in="$_b_in$_b_pid:$_b_start " _b_more=1
			case $_b_known in *" $_b_pid:$_b_start "*) ;; *) _b_known="$_b_known$_b_pid:$_b_start " ;; esac
			[ "$_b_group" -le 1 ] || _b_groups="$_b_groups$_b_group "
			[ "$_b_session" -le 1 ] || _b_sessions="$_b_sessions$_b_session "
		done
	done
}

# _b_signal SIGNAL sends it to all that was found and did not get it yet.
_b_signal() {
	_b_more=
	for _b_f in $_b_in; do
		case $_b_told in *" $1:$_b_f "*) continue ;; esac
		kill "-$1" "${_b_f%%:*}" 2>/dev/null
		_b_told="$_b_told$1:$_b_f " _b_more=1
	done
}

# _b_clock sets _b_now to hundredths of a second that pass.
_b_clock() {
	read -r _b_now _b_c </proc/uptime
	_b_now=${_b_now%.*}${_b_now#*.}
}

# _b_stop RUN FOLDER GRACE ends all of a run: TERM, KILL after GRACE hundredths of a
# second, and after two seconds more it prints what is left (contract C5).
_b_stop() {
	_b_known=' ' _b_told=' ' _b_clean=' '
	_b_clock
	_b_until=$((_b_now + $3))
	while [ "$_b_now" -lt "$_b_until" ]; do
		_b_look "$1" "$2"
		[ "$_b_in" != ' ' ] || return 0
		_b_signal TERM
		sleep "$_b_tenth"
		_b_clock
	done
	_b_until=$((_b_now + 200))
	while :; do
		# Halted first, so that nobody starts anything while it is killed.
		_b_h=0
		while [ "$_b_h" -lt 20 ]; do
			_b_look "$1" "$2"
			_b_signal STOP
			[ -n "$_b_more" ] || break
			_b_h=$((_b_h + 1))
		done
		[ "$_b_in" != ' ' ] || return 0
		[ "$_b_now" -lt "$_b_until" ] || break
		for _b_f in $_b_in; do kill -KILL "${_b_f%%:*}" 2>/dev/null; done
		sleep "$_b_nap"
		_b_clock
	done
	for _b_f in $_b_in; do
		_b_c='?'
		read -r _b_c <"/proc/${_b_f%%:*}/comm"
		echo "!left ${_b_f%%:*} $_b_c"
	done
}
