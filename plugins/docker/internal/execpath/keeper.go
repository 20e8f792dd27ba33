package execpath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// keeper is the shell in the container that signals and stops commands. It knows
// which ones run: when its input ends, because this process has ended in whatever
// way, it stops them (contract B3).
type keeper struct {
	ws   *Workspace
	mu   sync.Mutex // one request at a time
	sh   *shell
	runs []string
}

// ask has the keeper evaluate a line, and starts one if need be.
func (k *keeper) ask(ctx context.Context, line string) (out []byte, status int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.askLocked(ctx, line)
}

func (k *keeper) askLocked(ctx context.Context, line string) (out []byte, status int, err error) {
	for try := 1; ; try++ {
		fresh := k.sh == nil
		if fresh {
			if err := k.start(ctx); err != nil {
				return nil, 0, err
			}
		}
		out, status, err = k.request(ctx, line)
		if err == nil {
			return out, status, nil
		}
		k.sh.close()
		k.sh = nil
		if fresh || ctx.Err() != nil || try > 1 {
			return nil, 0, k.ws.broken(ctx, "asking the keeper of the container's commands", err)
		}
		// It was killed meanwhile, by a command perhaps. All requests may be repeated.
	}
}

func (k *keeper) start(ctx context.Context) error {
	sh, err := k.ws.newShell(ctx, "variable="+runVariable+"\n"+keeperScript)
	if err != nil {
		return err
	}
	k.sh = sh
	for _, run := range k.runs {
		if _, _, err := k.request(ctx, "runs=\"$runs "+run+"\""); err != nil {
			k.sh.close() // one that does not know all runs is none
			k.sh = nil
			return k.ws.broken(ctx, "telling the keeper what runs", err)
		}
	}
	return nil
}

// maxAnswer is what the keeper may say, the list of 200,000 processes: whoever has
// replaced the container's shell decides what comes, and how much.
const maxAnswer = 64 << 20

var errLongAnswer = errors.New("the container's shell does not end its answer: is it still the image's?")

func (k *keeper) request(ctx context.Context, line string) (out []byte, status int, err error) {
	stop := context.AfterFunc(ctx, k.sh.close)
	defer stop()
	defer k.ws.wake(ctx, k.sh.rouse)()
	if err := k.sh.send("! " + line); err != nil {
		return nil, 0, err
	}
	out, err = io.ReadAll(io.LimitReader(k.sh.out, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, err
	case len(out) > maxAnswer:
		return nil, 0, errLongAnswer
	}
	status, _, err = k.sh.result()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, status, err
}

// add makes a run known before it starts.
func (k *keeper) add(ctx context.Context, run string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, _, err := k.askLocked(ctx, "runs=\"$runs "+run+"\""); err != nil {
		return err
	}
	k.runs = append(k.runs, run)
	return nil
}

// remove lets a run's background children go on.
func (k *keeper) remove(ctx context.Context, run string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = slices.DeleteFunc(k.runs, func(r string) bool { return r == run })
	if k.sh == nil {
		return nil
	}
	if _, _, err := k.askLocked(ctx, "forget "+run); err != nil {
		return fmt.Errorf("forgetting a command that ended: %w", err)
	}
	return nil
}

func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sh != nil {
		k.sh.close()
		k.sh = nil
	}
}
