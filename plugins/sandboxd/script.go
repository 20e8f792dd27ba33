package sandboxd

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	//go:embed run.sh
	runScript string
	//go:embed stop.sh
	stopScript string
	//go:embed result.sh
	resultScript string
	//go:embed control.sh
	controlScript string
)

const (
	// scriptVariable holds the script of a run, and what follows it if it is long. So the
	// service's audit trail shows the command's own words, and no value of its
	// environment is an argument that a list of processes shows (contract B7).
	scriptVariable = "_BERTH_SH"
	// markVariable is the one by which all that a command started is found.
	markVariable = "_BERTH_RUN"
	// maxVariable is how much of a script one variable holds: execve takes 128 KiB.
	maxVariable = 96 << 10
)

// exportable are the names that a shell can export.
var exportable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ownOfShells are variables that a shell sets, watches or forbids to set. They are put
// past it, by env.
var ownOfShells = regexp.MustCompile(`^(LC_.*|LANG|LANGUAGE|BASH.*|SHELLOPTS|UID|EUID|GROUPS|PPID|IFS|OPTIND|OPTARG|OPTERR|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH.*|HISTCMD|FUNCNAME|DIRSTACK|PIPESTATUS|COMP_.*|MAIL|MAILPATH|MAILCHECK|FUNCNEST|TMOUT|POSIXLY_CORRECT|PWD|OLDPWD|SHLVL|_b_.*|_)$`)

// setByShells are variables that shells add to what they run.
var setByShells = []string{"PWD", "OLDPWD", "SHLVL", "_"}

// quote makes a word of the shell's of text that is UTF-8.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// word is a word of the shell's of any bytes. What is not UTF-8 does not pass JSON: it
// is put into the variable name first.
func word(prelude *strings.Builder, name, s string) string {
	if utf8.ValidString(s) {
		return quote(s)
	}
	prelude.WriteString(name + "=$(printf '%b' '" + octal(s) + "x')\n") // the x saves newlines at the end
	return `"${` + name + `%x}"`
}

// octal is any bytes for printf's %b.
func octal(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '/', c == ' ':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\0%03o`, c)
		}
	}
	return b.String()
}

// validArgv reports whether JSON carries argv as it is.
func validArgv(argv []string) bool {
	return !slices.ContainsFunc(argv, func(arg string) bool { return !utf8.ValidString(arg) })
}

// words puts the arguments that are not UTF-8 in place, and returns argv as JSON can
// carry it.
func words(script *strings.Builder, argv []string) []string {
	if validArgv(argv) {
		return argv
	}
	visible := slices.Clone(argv)
	var set strings.Builder
	for i, arg := range argv {
		if utf8.ValidString(arg) {
			set.WriteString(` "${` + strconv.Itoa(i+1) + `}"`)
			continue
		}
		set.WriteString(" " + word(script, "_b_a"+strconv.Itoa(i), arg))
		visible[i] = strings.ToValidUTF8(arg, "\ufffd")
	}
	script.WriteString("set --" + set.String() + "\n")
	return visible
}

// scripted is the request for a script with arguments.
func scripted(script string, argv []string) ([]string, map[string]string) {
	env := map[string]string{}
	var eval, parts strings.Builder
	for i := 0; i == 0 || len(script) > 0; i++ {
		name := scriptVariable
		if i > 0 {
			name += strconv.Itoa(i)
			parts.WriteString(" " + name)
		}
		end := min(len(script), maxVariable)
		for end < len(script) && !utf8.RuneStart(script[end]) {
			end--
		}
		env[name] = script[:end]
		script = script[end:]
		eval.WriteString("$" + name)
	}
	command := `eval "` + eval.String() + `"`
	if parts.Len() > 0 {
		command = "_b_parts='" + parts.String() + "' " + command
	}
	return append([]string{"sh", "-c", command, "berth"}, argv...), env
}

// variables writes what sets a command's environment and then becomes the command "$@".
func variables(script *strings.Builder, env map[string]string) {
	var past []string
	var exports strings.Builder
	unset := slices.Clone(setByShells)
	for i, name := range slices.Sorted(maps.Keys(env)) {
		own := "_b_v" + strconv.Itoa(i)
		if exportable.MatchString(name) && !ownOfShells.MatchString(name) {
			exports.WriteString("export " + name + "=" + word(script, own, env[name]) + "\n")
			continue
		}
		past = append(past, word(script, own, name+"="+env[name]))
		unset = slices.DeleteFunc(unset, func(s string) bool { return s == name })
	}
	script.WriteString("unset " + scriptVariable + " ${_b_parts-}\n")
	script.WriteString(exports.String())
	script.WriteString("unset " + strings.Join(append(unset, "_b_none"), " ") + "\n")
	if len(past) == 0 {
		script.WriteString("exec \"$@\"\n")
		return
	}
	through := "exec env " + strings.Join(past, " ")
	// A program whose name holds = would be a variable to env.
	script.WriteString("case $1 in *=*) " + through + " sh -c 'exec \"$@\"' sh \"$@\" ;; esac\n")
	script.WriteString(through + " \"$@\"\n")
}

// head is the first line of what a script says. What the service loses is the
// beginning of an output, or all of it.
const head = "berth\n"

// sayHead is what a script begins with.
const sayHead = "echo berth\n"

// how is what all scripts share: their first word, and settings.
func (f facts) how(script *strings.Builder) {
	script.WriteString(sayHead)
	nap, tenth := "1", "1"
	if f.fractions {
		nap, tenth = "0.01", "0.1"
	}
	encode, decode, reads := "base64", "base64 -d", 8
	if !f.base64 {
		encode, decode, reads = "od -An -v -tx1", "_b_octal", 2 // three characters a byte
		script.WriteString("_b_octal() { read -r _b_c; printf '%b' \"$_b_c\"; }\n")
	}
	nuls := ""
	if f.nuls {
		nuls = "1"
	}
	fmt.Fprintf(script, "_b_nap=%s _b_tenth=%s _b_enc=%s _b_dec=%s _b_reads=%d _b_nuls=%s\n", nap, tenth, quote(encode), quote(decode), reads, nuls)
}

// control is the request to look after a run.
func (f facts) control(args ...string) run {
	var script strings.Builder
	f.how(&script)
	script.WriteString(stopScript)
	script.WriteString(resultScript)
	script.WriteString(controlScript)
	argv, env := scripted(script.String(), args)
	return run{argv: argv, env: env}
}
