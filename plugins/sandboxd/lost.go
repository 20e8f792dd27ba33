package sandboxd

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// On a loaded machine the service loses output: about one short run in some hundreds is
// answered with exit code 0 and without a word. It looks as if its engine client drops
// what comes together with the head of the engine's answer, which takes the beginning of
// an output or all of it. So each script of ours begins with a word and ends with one,
// and what it came to is asked for again if one of them is missing.

// tries is how often something is asked whose answer is lost: each loses one in some
// hundreds.
const tries = 4

var errLost = fmt.Errorf("the service has lost what the session said: %w", workspace.ErrTransient)

// said is what a script has said after its first word, which it says at once.
func (a *runAnswer) said() (text string, ok bool) { return strings.CutPrefix(*a.Stdout, head) }

// lost reports whether the beginning is missing of what a script has said. One that
// could not begin has said nothing.
func (a *runAnswer) lost() bool {
	_, ok := a.said()
	return !ok && a.ExitCode != nil && *a.ExitCode != workspace.ExitNotFound && *a.ExitCode != workspace.ExitNotExecutable
}

// loses reports whether an answer was lost. What is left of an output may be what the
// service cannot read: it then answers that it has failed.
func loses(err error) bool {
	return errors.Is(err, errLost) || isStatus(err, http.StatusInternalServerError)
}
