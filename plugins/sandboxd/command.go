package sandboxd

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/plugin/sdk"
)

// Start starts a command. It returns before the service has begun with it: there is no
// answer before the end.
func (s *session) Start(_ context.Context, cmd sdk.Command) (sdk.Process, error) {
	p := newProcess(s, cmd)
	s.tasks.Go(p.run)
	return p, nil
}

// firstSegment is the number of a stream's first one. All have six digits, so that the
// shell lists them in order.
const firstSegment = 100000

// stdinVariables carry a piece of stdin.
var stdinVariables = func() (names [8]string) {
	for i := range names {
		names[i] = "_BERTH_I" + strconv.Itoa(i)
	}
	return names
}()

// request is what runs the command. Stdin that has ended is sent with it.
// The results of other runs, which have arrived, are removed by it.
func (p *process) request(stdin []byte, whole bool, arrived []string) run {
	f := p.session.facts()
	var script strings.Builder
	f.how(&script)
	script.WriteString("_b_d=" + quote(p.where()) + " _b_run=" + p.name + " _b_old='" + strings.Join(arrived, " ") + "'")
	if p.stdin != nil {
		script.WriteString(" _b_in=1\n")
	} else {
		script.WriteString(" _b_in=\n")
	}
	at := word(&script, "_b_w", p.cmd.Dir)
	script.WriteString("_b_w=" + at + "\n_b_env() {\n")
	visible := words(&script, p.cmd.Args)
	variables(&script, p.cmd.Env)
	script.WriteString("}\n")
	script.WriteString(stopScript)
	script.WriteString(resultScript)
	script.WriteString(runScript)
	r := run{id: newID()}
	r.argv, r.env = scripted(script.String(), visible)
	r.env[markVariable] = p.name
	if whole {
		f.pieces(r.env, stdin)
	}
	return r
}

// mostBeside is how much of a command goes together with stdin: Linux takes 2 MiB in
// all, unless its limit on a stack was changed.
const mostBeside = 1 << 20

// leavesRoom reports whether stdin may travel with the command.
func (p *process) leavesRoom() bool {
	size := 0
	for _, arg := range p.cmd.Args {
		size += len(arg)
	}
	for name, value := range p.cmd.Env {
		size += len(name) + len(value)
	}
	return size <= mostBeside
}

// maxPiece is how much of stdin the variables hold.
func (f facts) maxPiece() int {
	if f.base64 {
		return 512 << 10
	}
	return 128 << 10
}

// pieces puts a piece of stdin into variables.
func (f facts) pieces(env map[string]string, data []byte) {
	encode := octalAll
	if f.base64 {
		encode = base64.StdEncoding.EncodeToString
	}
	text := encode(data)
	env[stdinVariables[0]] = ""
	for _, name := range stdinVariables {
		n := min(len(text), maxVariable)
		if n == 0 {
			break
		}
		env[name], text = text[:n], text[n:]
	}
}

// octalAll is octal for what is to be cut anywhere between two bytes.
func octalAll(data []byte) string {
	const digits = "01234567"
	b := make([]byte, 0, 5*len(data))
	for _, c := range data {
		b = append(b, '\\', '0', digits[c>>6], digits[c>>3&7], digits[c&7])
	}
	return string(b)
}
