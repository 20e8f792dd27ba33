# What shellfs does in a workspace, one function an operation, for a POSIX shell
# with the file tools of GNU, BusyBox or the like. Paths are absolute. Whatever is
# told to the caller is told by the exit status: those below, or 1 with the
# system's own words, which LC_ALL makes the same everywhere, on stderr.
LC_ALL=C TZ=UTC0
export LC_ALL TZ
umask 022
unset GREP_OPTIONS POSIXLY_CORRECT
exist=65 isdir=66 notdir=67 loop=68 denied=69 inval=70 special=71 crossdev=73 workdir=74
# From here on it is not known how much of the input was read.
broken=78

# What a file is: mode, size and time.
about='%f %s %y'

exists() { [ -e "$1" ] || [ -h "$1" ]; }

# lost says why a path leads nowhere.
lost() { stat -c %f "$1" >/dev/null || exit 1; }

# lostthrough does too, links followed.
lostthrough() { stat -L -c %f "$1" >/dev/null || exit 1; }

# target sets t to what the link $1 holds.
target() {
	t=$(readlink -n "$1" && echo x)
	t=${t%x}
}

# holds says whether the directory $1 is the working directory $2 or above it.
holds() {
	w=$2
	while :; do
		[ "$1" -ef "${w:-/}" ] && return
		[ -n "$w" ] || return
		w=${w%/*}
	done
}

notregular() {
	[ -d "$1" ] && exit $isdir
	if [ -p "$1" ]; then echo 'a named pipe' >&2
	elif [ -S "$1" ]; then echo 'a socket' >&2
	elif [ -b "$1" ] || [ -c "$1" ]; then echo 'a device' >&2
	else
		lostthrough "$1"
		echo 'of another kind' >&2
	fi
	exit $special
}

# op_probe tells what there is. With $1 nothing is written by frames.
op_probe() {
	for t in cat chmod chown dd head ln mkdir mv readlink rm stat tail touch; do
		command -v $t >/dev/null || echo "lacks $t"
	done
	printf '1 /\0' | xargs -0 echo >/dev/null 2>&1 && echo xargs
	[ -n "$1" ] || [ "$(printf abcd | { dd bs=2 count=1 iflag=fullblock; cat >/dev/null; } 2>/dev/null)" = ab ] || echo 'lacks dd iflag=fullblock'
	touch -c -m -d 2001-02-03T04:05:06.123456789Z /berth-missing 2>/dev/null && echo nanoseconds
	:
}

op_lstat() {
	stat -c "$about" "$1" || exit 1
	[ ! -h "$1" ] || readlink -n "$1"
}

op_stat() {
	stat -L -c "$about" "$1" || exit 1
	[ ! -h "$1" ] || readlink -n "$1"
}

# op_readdir lists names, then what they are in the same order, then of each link
# its name, its target, and what it leads to. With $2 each name is told with what
# it is, slowly: for a directory that changes meanwhile.
op_readdir() {
	cd -P "$1" 2>/dev/null || {
		lostthrough "$1"
		[ -d "$1" ] && exit $denied
		exit $notdir
	}
	[ -r . ] || exit $denied
	slow=$2
	# A pattern that nothing matches stays as it is.
	set -- .[!.]*
	exists "$1" || shift
	set -- ..?* "$@"
	exists "$1" || shift
	set -- * "$@"
	exists "$1" || shift
	[ $# -gt 0 ] || return 0
	if [ -n "$slow" ]; then
		for f; do
			printf '%s\0' "$f"
			stat -c "$about" "./$f" 2>/dev/null
			printf '\0'
		done
	else
		printf '%s\0' "$@"
		printf '\0'
		printf './%s\0' "$@" | xargs -0 stat -c "$about" 2>/dev/null
	fi
	printf '\0'
	for f; do
		[ -h "$f" ] || continue
		printf '%s\0' "$f"
		readlink -n "./$f"
		printf '\0'
		[ ! -e "$f" ] || stat -L -c "$about" "./$f" 2>/dev/null
		printf '\0'
	done
}

op_mkdir() {
	# GNU's makes what no other call reaches.
	[ ${#1} -lt 4096 ] || lostthrough "$1"
	mkdir -p "$1" || exit 1
}

# op_remove removes $1, which was given with a slash at its end if $2. The working
# directory is $3.
op_remove() {
	exists "$1" || lost "$1"
	if [ -h "$1" ] || [ ! -d "$1" ]; then
		[ -z "$2" ] || exit $notdir
	else
		holds "$1" "$3" && exit $workdir
		case ${1##*/} in
		. | ..) # rm refuses these: the tree is removed under its own name
			t=$(cd -P "$1" && pwd -P && echo x) || exit 1
			t=${t%x}
			set -- "${t%?}"
			;;
		esac
	fi
	rm -rf "$1" || exit 1
}

op_realpath() {
	todo=$1 path= links=0
	while [ -n "$todo" ]; do
		case $todo in
		*/*) name=${todo%%/*} todo=${todo#*/} ;;
		*) name=$todo todo= ;;
		esac
		case $name in
		'' | .) ;;
		..) path=${path%/*} ;;
		*)
			if [ -h "$path/$name" ] && target "$path/$name" && [ -n "$t" ]; then
				links=$((links + 1))
				[ $links -le 40 ] || exit $loop
				case $t in /*) path= ;; esac
				todo=$t/$todo
			else
				path=$path/$name
			fi
			;;
		esac
	done
	printf %s "${path:-/}"
}

# op_open tells what the file $1 is, and then sends $3 bytes of it from $2 on, or
# with 0 all.
op_open() {
	[ -f "$1" ] || notregular "$1"
	[ -r "$1" ] || exit $denied
	opened=
	{
		opened=1
		is=$(stat -L -c "$about" /proc/self/fd/3) || exit 1
		printf '%s\n' "$is"
		[ ! -h "$1" ] || readlink -n "$1"
		printf '\0'
		from=$2 length=$3
		size=${is#* }
		size=${size%% *}
		whole=
		# Files that the kernel makes up have no size but content.
		if [ "$size" -gt 0 ]; then
			rest=$((size - from))
			[ $rest -gt 0 ] || exit 0
			if [ "$length" -eq 0 ] || [ "$length" -ge $rest ]; then
				length=$rest whole=1
			fi
		fi
		# The reader cuts off what was added meanwhile: cat is faster than head.
		if [ "$from" -eq 0 ] && { [ -n "$whole" ] || [ "$length" -eq 0 ]; }; then
			cat <&3 || exit 1
		elif [ "$from" -eq 0 ]; then
			head -c "$length" <&3 || exit 1
		elif [ -n "$whole" ] || [ "$length" -eq 0 ]; then
			tail -c "+$((from + 1))" <&3 || exit 1
		else
			tail -c "+$((from + 1))" <&3 2>/dev/null | head -c "$length" || exit 1
		fi
	} 3<"$1"
	[ -n "$opened" ] || exit 1
}

# place finds the place $p of a file to write: $1, mode $2, exclusive if $3,
# appending if $4, with the time $5 if any.
place() {
	p=$1 mode=$2 exclusive=$3 append=$4 time=$5 links=0
	while :; do
		case ${p##*/} in
		'' | . | ..) # names a directory, whatever is there
			[ -d "$p" ] && exit $isdir
			exists "${p%"${p##*[!/]}"}" && exit $notdir
			exit $isdir
			;;
		esac
		[ -h "$p" ] || break
		[ -z "$exclusive" ] || exit $exist
		links=$((links + 1))
		[ $links -le 40 ] || exit $loop
		target "$p"
		case $t in
		/*) p=$t ;;
		*) p=${p%/*}/$t ;;
		esac
	done
	d=${p%/*}
	d=${d:-/}
	old= elsewhere=
	if [ -e "$p" ]; then
		old=1
		[ -z "$exclusive" ] || exit $exist
		[ -f "$p" ] || notregular "$p"
		# A program that runs is replaced, not overwritten.
		e=$( (: >>"$p") 2>&1) || case $e in
		*'ext file busy'*) ;;
		*)
			printf '%s\n' "$e" >&2
			exit 1
			;;
		esac
	elif [ ! -d "$d" ]; then
		[ ! -e "$d" ] || exit $notdir
		mkdir -p "$d" || exit 1
	fi
}

# stage makes the file $s of the name $1, where the content is until it is complete.
stage() {
	s=$d/$1
	if ! e=$( (umask 077 && : >"$s") 2>&1); then
		t=${TMPDIR:-/tmp}/$1
		if [ -n "$old" ] && (umask 077 && : >"$t") 2>/dev/null; then
			s=$t elsewhere=1
		else
			[ -n "$old" ] || [ "${#p}" -lt 4096 ] && printf '%s\n' "$e" >&2
			exit 1
		fi
	fi
}

# op_create writes a file as place is told, under the name $6 until it is complete.
# The content comes in frames: `d N` and N bytes, and at the end `c` and the number
# of them all. Without that nothing is published.
op_create() {
	place "$@"
	stage "$6"
	trap 'rm -f "$s"' EXIT
	echo ready
	while read -r c k; do
		case $c in
		d)
			e=$(dd bs="$k" count=1 iflag=fullblock 2>&1 >>"$s") || {
				printf '%s\n' "$e" >&2
				exit $broken
			}
			;;
		c)
			[ "$(stat -c %s "$s")" = "$k" ] || exit $broken
			publish
			exit 0
			;;
		*) exit $broken ;;
		esac
	done
	exit $broken
}

# publish puts the complete file $s into the place of $p.
publish() {
	# It may have come, gone or changed since: what counts is now.
	if exists "$p"; then
		[ -z "$exclusive" ] || exit $exist
		[ -f "$p" ] || notregular "$p"
		if [ -n "$append" ] || [ -n "$elsewhere" ]; then
			inplace
			return
		fi
		set -- $(stat -c '%a %u %g %h' "$p") $(stat -c '%u %g' "$s")
		# Another owner or a second name would be lost with the old file.
		if [ "$4" != 1 ] || { [ "$2 $3" != "$5 $6" ] && ! chown "$2:$3" "$s" 2>/dev/null; }; then
			inplace
			return
		fi
		mode=$1
	fi
	chmod "$mode" "$s" || exit 1
	[ -z "$time" ] || touch -m -d "$time" "$s" || exit 1
	if [ -n "$exclusive$append" ]; then # these never replace
		e=$(ln "$s" "$p" 2>&1) && return
		if exists "$p"; then
			[ -z "$exclusive" ] || exit $exist
			inplace
			return
		fi
		# A file system without hard links.
		(set -C && : >"$p") 2>/dev/null || {
			printf '%s\n' "$e" >&2
			exit 1
		}
	fi
	e=$(mv -f "$s" "$p" 2>&1) && return
	if [ -f "$p" ]; then # a mount point, say
		inplace
		return
	fi
	printf '%s\n' "$e" >&2
	exit 1
}

# inplace writes into the file that is there.
inplace() {
	if [ -n "$append" ]; then
		cat "$s" >>"$p" || exit 1
	else
		cat "$s" >"$p" || exit 1
	fi
	[ -z "$time" ] || touch -m -d "$time" "$p" || exit 1
}

# op_rename renames $1 to $2. The working directory is $3.
op_rename() {
	exists "$1" || lost "$1"
	dir=
	if [ -d "$1" ] && [ ! -h "$1" ]; then
		dir=1
		holds "$1" "$3" && exit $workdir
	fi
	if exists "$2"; then
		[ "$1" -ef "$2" ] && [ ! -h "$1" ] && [ ! -h "$2" ] && exit 0
		[ -d "$2" ] && [ ! -h "$2" ] && exit $exist
		[ -z "$dir" ] || exit $notdir
	fi
	# mv would copy from one file system to another.
	to=${2%"${2##*[!/]}"}
	to=${to%/*}
	to=$(stat -L -c %d "${to:-/}") || exit 1
	[ "$(stat -c %d "$1")" = "$to" ] || exit $crossdev
	e=$(mv -fT "$1" "$2" 2>&1) || {
		case $e in *'ubdirectory of itself'*) exit $inval ;; esac
		printf '%s\n' "$e" >&2
		exit 1
	}
}

op_symlink() {
	exists "$2" && exit $exist
	ln -s -- "$1" "$2" || exit 1
}

op_readlink() {
	[ -h "$1" ] || {
		lost "$1"
		exit $inval
	}
	readlink -n "$1" || exit 1
}

op_chmod() {
	[ -e "$2" ] || lostthrough "$2"
	chmod "$1" "$2" || exit 1
}

op_chtimes() {
	[ -e "$2" ] || lostthrough "$2"
	touch -c -m -d "$1" "$2" || exit 1
}
