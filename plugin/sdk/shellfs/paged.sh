# What is needed besides where a script gets nothing but arguments and is heard at
# its end: arguments and output travel encoded, content in pages of arguments.

# An argument is r and its text, or e and its text for printf's %b.
decode() {
	n=$#
	while [ $n -gt 0 ]; do
		case $1 in
		e*)
			a=$(printf '%bx' "${1#e}")
			a=${a%x}
			;;
		*) a=${1#r} ;;
		esac
		shift
		set -- "$@" "$a"
		n=$((n - 1))
	done
	paged "$@"
}

# paged runs an operation, of whose output the first $1 bytes are told, encoded: b
# and base64, or o and octal numbers.
paged() {
	most=$1
	shift
	exec 4>&1
	if command -v base64 >/dev/null; then
		printf b
		encode() { base64; }
	else
		printf o
		encode() { od -A n -v -t o1; }
	fi
	status=$({ {
		("$@") 3>&- 4>&-
		echo $? >&3
	} | head -c "$most" | encode >&4; } 3>&1)
	exit "$status"
}

# content writes a page, of which the first argument says how it is encoded, or f that it
# is in a file, which is not needed any more.
content() {
	c=$1
	shift
	case $c in
	b) printf %s "$@" | base64 -d ;;
	f) cat "$1" && rm -f "$1" ;;
	*) printf %b "$@" ;;
	esac
}

# has says whether the staged file $s has so many bytes.
has() { [ "$(stat -c %s "$s")" = "$1" ]; }

# full says why a page was not written whole.
full() {
	[ -z "$e" ] || printf '%s\n' "$e" >&2
	rm -f "$s"
	exit 1
}

# op_put writes a file of one page: as op_create is told, then its size and content.
op_put() {
	place "$@"
	stage "$6"
	trap 'rm -f "$s"' EXIT
	size=$7
	shift 7
	e=$(content "$@" 2>&1 >"$s") && has "$size" || full
	publish
}

# op_begin is the first page of several. It tells under what name they are gathered.
op_begin() {
	place "$@"
	stage "$6"
	size=$7
	shift 7
	e=$(content "$@" 2>&1 >"$s") && has "$size" || full
	printf %s "$s"
}

# op_more adds a page to the staged file $1, which has $2 bytes and will have $3.
op_more() {
	s=$1 size=$3
	has "$2" || {
		rm -f "$s"
		exit $broken
	}
	shift 3
	e=$(content "$@" 2>&1 >>"$s") && has "$size" || full
}

# op_finish publishes the staged file $6, which has $7 bytes.
op_finish() {
	place "$@"
	s=$6
	[ "${s%/*}" = "$d" ] || elsewhere=1
	trap 'rm -f "$s"' EXIT
	has "$7" || exit $broken
	publish
}

# op_abandon removes what a write may have left that was told as op_create is.
op_abandon() {
	place "$@"
	rm -f "$d/$6" "${TMPDIR:-/tmp}/$6"
}

op_drop() { rm -f "$1"; }

# op_spool keeps the output of an operation in a file of the name $1, and tells where.
op_spool() {
	s=${TMPDIR:-/tmp}/$1
	shift
	("$@") >"$s" || {
		n=$?
		rm -f "$s"
		exit $n
	}
	printf %s "$s"
}
