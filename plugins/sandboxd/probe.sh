# Tells what a session's container has.
# Where commands keep their output: rather not where they keep their own files, which
# may fill it.
_b_m=
for _b_f in /dev/shm "${TMPDIR:-/tmp}" /tmp /var/tmp; do
	[ -d "$_b_f" ] && [ -w "$_b_f" ] || continue
	[ -n "$_b_m" ] || _b_m=$_b_f
	# One that is full takes names, and nothing in them.
	_b_c=
	if dd if=/dev/zero bs=65536 count=4 2>/dev/null >"$_b_f/.berth-room-$$"; then _b_c=1; fi
	rm -f "$_b_f/.berth-room-$$"
	if [ -n "$_b_c" ]; then
		_b_m=$_b_f
		break
	fi
done
[ -z "$_b_m" ] || echo "tmp $_b_m"
for _b_f in dd mkfifo mkdir mv rm cat tail tr grep wc sleep; do
	command -v "$_b_f" >/dev/null 2>&1 || echo "lacks $_b_f"
done
if [ "$(printf 'YQ==' | base64 -d 2>/dev/null)" = a ]; then
	echo base64
elif ! command -v od >/dev/null 2>&1; then
	echo 'lacks base64 or od'
fi
if sleep 0.001 2>/dev/null; then echo fractions; fi
if printf 'a\0b=c\0' | grep -qF b=c; then echo nuls; fi
_b_w=$(pwd -P)
read -r _b_c </proc/sys/kernel/hostname
echo "host $_b_c"
while read -r _b_c _b_c _b_c _b_c _b_m _b_c; do
	if [ "$_b_m" = "$_b_w" ]; then
		_b_c=$(stat -c '%i %w' "$_b_w" 2>/dev/null) || { _b_c=$(ls -di "$_b_w") && _b_c="${_b_c%% /*} -"; }
		echo "mount $_b_c"
		break
	fi
done </proc/self/mountinfo
echo "dir $_b_w"
