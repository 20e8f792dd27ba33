# Runs one command. The first line of input says which; the rest is the command's
# own. It sets _b_mark, a word that nobody else knows and that begins the lines which
# tell what happens; _b_dir; _b_size, of arguments and environment; _b_input, empty
# if there is none; the function environ; and the command as the arguments. Names
# begin with _b_ because a variable of the workspace's own would be changed.
IFS= read -r _b_line || exit
eval "$_b_line"
# What the shell itself has to say, that a command was killed, is not the command's.
exec 9>&2 2>/dev/null
tell() { printf '\001%s %s\n' "$_b_mark" "$1" >&9; }
# A command may signal its own process group, in which this shell is.
trap : 1 2 3 10 12 13 14 15
tell "shell $$"
cd -P "$_b_dir" 2>/dev/null || {
	tell directory
	exit 0
}
if [ "$_b_size" -gt 100000 ]; then
	# What execve takes: a quarter of the stack, within limits.
	_b_limit=$(ulimit -s)
	case $_b_limit in
	*[!0-9]*) _b_limit=6291456 ;;
	*) _b_limit=$((_b_limit * 256)) ;;
	esac
	[ $_b_limit -le 6291456 ] || _b_limit=6291456
	[ $_b_limit -ge 131072 ] || _b_limit=131072
	[ "$_b_size" -lt $_b_limit ] || {
		tell big
		exit 0
	}
fi
(
	read -r _b_pid _b_rest </proc/self/stat
	# On both outputs: whoever waits for this reads neither, and either may be full.
	printf '\001%s %s\n' "$_b_mark" "started $_b_pid"
	tell "started $_b_pid"
	[ -n "$_b_input" ] || exec </dev/null
	exec 2>&9 9>&-
	environ
	exec "$@"
)
tell "exited $?"
printf '\001%s\n' "$_b_mark"
# This shell keeps the outputs open for as long as a background child holds them.
exec </dev/null
held() {
	for _b_file in /proc/[0-9]*/fd/[0-9]*; do
		case $_b_file in "/proc/$$/"*) continue ;; esac
		[ "$_b_file" -ef "/proc/$$/fd/1" ] && return
		[ "$_b_file" -ef "/proc/$$/fd/9" ] && return
	done
	return 1
}
while held; do
	sleep 2 >/dev/null 2>&1 || exit
done
