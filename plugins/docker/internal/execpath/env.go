package execpath

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// runVariable is the variable by which all that a run started is found again, in
// whatever session or process group: its value is the run's own random name.
const runVariable = "_BERTH_RUN"

// exportable are the names that a shell can export.
var exportable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ownOfShells are variables that one shell or another sets, exports, or forbids to
// set by itself. They travel past it.
var ownOfShells = regexp.MustCompile(`^(LC_.*|LANG|LANGUAGE|BASH.*|SHELLOPTS|UID|EUID|GROUPS|PPID|IFS|OPTIND|OPTARG|OPTERR|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH.*|HISTCMD|FUNCNAME|DIRSTACK|PIPESTATUS|COMP_.*|MAIL|MAILPATH|MAILCHECK|FUNCNEST|TMOUT|POSIXLY_CORRECT|_b_.*|_)$`)

// setByShells are variables that shells add to what they run.
var setByShells = []string{"PWD", "OLDPWD", "SHLVL", "_"}

// environment says how a command gets its variables through a shell.
type environment struct {
	// script is the body of a shell function that exports and unsets.
	script string
	// prefix runs the command under env with what a shell cannot pass.
	prefix []string
	// size is of all variables together as execve counts.
	size int
}

// newEnvironment puts added over base, which is what the workspace gives every
// command by itself. Values pass through the shell wherever it can export them: in
// the arguments of env they could be seen in a list of processes for a moment.
func newEnvironment(base, added map[string]string) environment {
	var e environment
	var script strings.Builder
	all := maps.Clone(base)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, added)
	var past, unset []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		e.size += len(name) + 1 + len(value) + perString
		inherited := false
		if own, ok := base[name]; ok && own == value {
			inherited = true
		}
		byShell := slices.Contains(setByShells, name)
		switch {
		case !exportable.MatchString(name):
			past = append(past, name+"="+value) // a shell drops them
		case inherited && !byShell:
		case ownOfShells.MatchString(name):
			past = append(past, name+"="+value)
		default:
			script.WriteString("export " + name + "=" + quote(value) + ";")
		}
	}
	for _, name := range setByShells {
		if _, ok := all[name]; !ok {
			unset = append(unset, name)
		}
	}
	script.WriteString("unset " + strings.Join(unset, " ") + ";:;")
	e.script = script.String()
	if len(past) > 0 {
		e.prefix = append([]string{"env"}, past...)
	}
	return e
}

// perString is what execve counts for a string besides its bytes: NUL and pointer.
const perString = 1 + 8

// parseEnviron reads /proc/PID/environ.
func parseEnviron(b []byte) map[string]string {
	env := map[string]string{}
	for variable := range strings.SplitSeq(string(b), "\x00") {
		if name, value, ok := strings.Cut(variable, "="); ok && name != "" && name != runVariable {
			env[name] = value
		}
	}
	return env
}
