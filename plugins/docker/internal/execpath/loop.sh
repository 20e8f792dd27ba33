# A shell that is kept: $1 defines what it can do. Its first line of input is a word
# that nobody else knows; each line after that begins with it, so that nothing else
# that might come by this way is ever evaluated. The word marks the end of each
# answer, on stderr with its status. The first of them tells this shell's own pid.
IFS= read -r mark || exit
eval "$1"
runs=
printf '\001%s %s\n' "$mark" $$ >&2
printf '\001%s\n' "$mark"
while IFS= read -r line; do
	case $line in
	"$mark ! "*) eval "${line#"$mark ! "}" ;;
	"$mark "*) (eval "${line#"$mark "}") ;;
	*) exit ;;
	esac
	status=$?
	printf '\001%s %s\n' "$mark" "$status" >&2
	printf '\001%s\n' "$mark"
	# What follows may be the rest of an input that was not read.
	[ "$status" -le 77 ] || exit
done
# The plugin has ended, or has no use for this shell: what it still runs is stopped.
[ -z "$runs" ] || reap
