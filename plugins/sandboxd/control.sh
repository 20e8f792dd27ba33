# Looks after a run that goes on. "$1" says how, "$2" is the run's folder.

# exchange FOLDER O-SEGMENT O-OFFSET E-SEGMENT E-OFFSET ROUNDS drops what was taken,
# waits for output beyond it, and tells that.
_b_exchange() {
	cd "$1" 2>/dev/null || { echo =gone; return; }
	for _b_f in o.1????? e.1?????; do
		[ -e "$_b_f" ] || continue
		_b_c=$2
		[ "${_b_f%.*}" = o ] || _b_c=$4
		[ "${_b_f#*.}" -ge "$_b_c" ] || rm -f "$_b_f"
	done
	_b_i=0
	while :; do
		echo "$$.$_b_i" >lease || { echo =gone; return; }
		[ ! -e exit ] || break
		[ ! -e "o.$(($2 + 1))" ] && [ ! -e "e.$(($4 + 1))" ] || break
		_b_c=$(wc -c <"o.$2") && [ "${_b_c:-0}" -gt "$3" ] && break
		_b_c=$(wc -c <"e.$4") && [ "${_b_c:-0}" -gt "$5" ] && break
		[ "$_b_i" -lt "$6" ] || break
		_b_i=$((_b_i + 1))
		sleep "$_b_tenth"
	done 2>/dev/null
	for _b_f in o.1????? e.1?????; do
		[ -s "$_b_f" ] || continue
		case $_b_f in
		"o.$2") _b_c=$3 ;;
		"e.$4") _b_c=$5 ;;
		*) _b_c=0 ;;
		esac
		echo "@$_b_f+$_b_c"
		tail -c "+$((_b_c + 1))" "$_b_f" | $_b_enc
	done
	if [ -e exit ]; then echo =exited; else echo =on; fi
}

case $1 in
exchange)
	shift
	_b_exchange "$@" ;;
signal) # FOLDER SIGNAL
	_b_i=0
	until [ -s "$2/pid" ] || [ "$_b_i" -ge 20 ]; do
		sleep "$_b_tenth"
		_b_i=$((_b_i + 1))
	done
	if [ ! -s "$2/pid" ] || [ -e "$2/exit" ]; then
		echo =gone
	else
		read -r _b_c <"$2/pid"
		if kill "-$3" "$_b_c" 2>&1; then echo =sent; elif [ ! -d "/proc/$_b_c" ]; then echo =gone; else echo =failed; fi
	fi ;;
stop) # FOLDER RUN GRACE
	# One that has not begun does not begin any more.
	if mkdir -m 700 "$2" 2>/dev/null; then echo >"$2/stopped"; fi
	[ ! -e "$2/stopped" ] || echo '!early'
	_b_stop "$3" "$2" "$4"
	echo =stopped ;;
lease) # FOLDER
	if [ -e "$2/exit" ]; then echo =exited; elif echo $$ 2>/dev/null >"$2/lease"; then echo =on; else echo =gone; fi ;;
input) # FOLDER SEGMENT END
	if ! cd "$2" 2>/dev/null || [ -e exit ]; then
		echo =gone
	elif [ -e i.closed ]; then
		echo '!closed'
		echo =on
	else
		_b_i=0
		while [ -e "i.$(($3 - 2))" ] && [ "$_b_i" -lt 10 ]; do
			_b_i=$((_b_i + 1))
			sleep "$_b_tenth"
		done
		if [ -e "i.$(($3 - 2))" ]; then
			echo '!full'
		else
			# One that comes again, since the answer was lost, was taken perhaps.
			_b_c=
			[ ! -e i.got ] || read -r _b_c <i.got
			if [ -n "${_BERTH_I0+x}" ] && [ "${_b_c:-0}" -lt "$3" ]; then
				printf '%s' "$_BERTH_I0$_BERTH_I1$_BERTH_I2$_BERTH_I3$_BERTH_I4$_BERTH_I5$_BERTH_I6$_BERTH_I7" | $_b_dec >i.new && echo "$3" >i.got && mv i.new "i.$3"
			fi
			[ -z "$4" ] || echo >i.end
		fi
		echo =on
	fi ;;
finish) # FOLDER RUN O-SEGMENT O-OFFSET E-SEGMENT E-OFFSET
	# What has ended by itself has a result, and is not stopped: its children go on.
	if _b_kept "${2%/*}" "$3"; then
		_b_result "$_b_k"
		if [ -d "$2" ]; then rm -rf "$2"; fi # of a stop that came too late
	else
		_b_stop "$3" "$2" 0
		_b_c=$2
		if _b_kept "${2%/*}" "$3"; then _b_c=$_b_k; fi
		_b_exchange "$_b_c" "$4" "$5" "$6" "$7" 0
		cd / && rm -rf "$2"
		if _b_kept "${2%/*}" "$3"; then rm -rf "$_b_k"; fi
	fi ;;
sweep) # TMP RUNS
	_b_sweep "$2" "$3"
	echo =swept ;;
esac
exit 0
