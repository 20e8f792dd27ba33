package sdk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxPipeRead is the most that is read at once: what a Linux pipe holds.
const maxPipeRead = 64 << 10

// startProcess starts the command. A run that is stopped meanwhile does not wait
// for a Start that hangs; what that starts in the end is stopped then.
func (r *run) startProcess(commander Commander, cmd Command) (Process, error) {
	type started struct {
		process Process
		err     error
	}
	result, abandoned := make(chan started), make(chan struct{})
	r.server.goSafely("Start", func() {
		var st started
		st.err = r.server.safely("Start", func() (err error) {
			st.process, err = commander.Start(r.ctx, cmd)
			if err == nil && isNil(st.process) {
				err = errors.New("the provider returned no process and no error")
			}
			return err
		})
		select {
		case result <- st:
		case <-abandoned:
			if st.err == nil {
				_ = st.process.Stop(0)
				_ = st.process.Close()
			}
		}
	})
	done := func(st started) (Process, error) {
		if st.err != nil {
			return nil, r.orCause(r.dirError(cmd.Dir, st.err))
		}
		return st.process, nil
	}
	select {
	case st := <-result:
		return done(st)
	case <-r.stopCh:
	}
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case st := <-result:
		return done(st)
	case <-timer.C:
		close(abandoned)
		return nil, r.cause.err(fmt.Sprintf("the provider was still starting it %v later", endWait))
	}
}

// ended is what Wait gave.
type ended struct {
	code int
	err  error
}

// oversee sees a started command through to its outcome, and then closes it.
func (r *run) oversee(e *entry, process Process) {
	r.out.put(&berthv1.RunResponse{Message: &berthv1.RunResponse_Started{Started: &berthv1.RunStarted{RunRegistry: r.server.runRegistry(e)}}})
	defer r.close(process)
	seen := false
	defer func() {
		if !seen { // a panic: leave nothing behind
			r.stopProcess(process, 0)
		}
	}()
	defer r.server.watchRun(e, &r.stopper)()

	over := make(chan struct{}) // the command is done for: nobody waits for its helpers
	defer close(over)
	r.server.goSafely("Signal", func() { r.deliver(process, over) })
	closeStdin := r.serveStdin(process)
	defer closeStdin()
	pumps := r.pumpAll(process)
	exit := make(chan ended, 1)
	r.server.goSafely("Wait", func() {
		var end ended
		end.err = r.server.safely("Wait", func() (err error) {
			end.code, err = process.Wait()
			return err
		})
		exit <- end
	})

	select {
	case end := <-exit:
		r.afterExit(e, process, end, pumps, closeStdin)
	case <-r.stopCh:
		r.afterStop(process, exit, pumps)
	}
	seen = true
}

// afterExit delivers what the command left, however slow the caller reads, and
// then its exit code.
func (r *run) afterExit(e *entry, process Process, end ended, pumps <-chan struct{}, closeStdin func()) {
	closeStdin()
	if r.timer != nil {
		r.timer.Stop() // it is for the command, not for its caller's reading
	}
	if end.err != nil {
		if isUnavailable(end.err) {
			r.server.cache.forget(e)
		}
		r.settle(pumps, drainWait)
		r.fail(fmt.Errorf("run %s: %w", r.id, end.err))
		// Its end is not known: make sure of it.
		r.stopProcess(process, 0)
		return
	}
	ticker := time.NewTicker(outputWait / 10)
	defer ticker.Stop()
	for {
		select {
		case <-pumps:
			// They may have ended for a reason to stop: the limit, a broken output.
			select {
			case <-r.stopCh:
				r.fail(r.cause.err(r.stopProcess(process, r.cause.grace)))
			default:
				r.awaitSignal()
				r.exit(end.code)
			}
			return
		case <-r.stopCh:
			if r.cause.gone {
				r.fail(r.cause.err(""))
			}
			survivors := r.stopProcess(process, r.cause.grace)
			r.settle(pumps, drainWait)
			r.fail(r.cause.err(survivors))
			return
		case <-ticker.C:
			if r.window.idle() > outputWait {
				r.settle(pumps, 0)
				r.fail(fmt.Errorf("run %s: the command exited with %d, but the provider has not ended its output %v later", r.id, end.code, outputWait))
				return
			}
		}
	}
}

// afterStop stops the command's whole tree and tells why.
func (r *run) afterStop(process Process, exit <-chan ended, pumps <-chan struct{}) {
	if r.cause.gone {
		r.window.drop()
		r.fail(r.cause.err(""))
	}
	survivors := r.stopProcess(process, r.cause.grace)
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-exit:
	case <-timer.C:
		survivors = join(survivors, fmt.Sprintf("the provider has not told its end %v later", endWait))
	}
	r.settle(pumps, drainWait)
	r.fail(r.cause.err(survivors))
}

// settle lets the outputs come to their end without waiting for the caller.
func (r *run) settle(pumps <-chan struct{}, most time.Duration) {
	r.window.drop()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-pumps:
	case <-timer.C:
	}
}

// stopProcess is Stop, but ends itself.
func (r *run) stopProcess(process Process, grace time.Duration) (survivors string) {
	done := make(chan string, 1)
	r.server.goSafely("Stop", func() {
		var left string
		if err := r.server.safely("Stop", func() error { left = process.Stop(grace); return nil }); err != nil {
			left = err.Error()
		}
		done <- left
	})
	timer := time.NewTimer(grace + stopWait)
	defer timer.Stop()
	select {
	case left := <-done:
		return left
	case <-timer.C:
		return fmt.Sprintf("the provider was still stopping it %v later", grace+stopWait)
	}
}

func join(texts ...string) string {
	var some []string
	for _, text := range texts {
		if text != "" {
			some = append(some, text)
		}
	}
	return strings.Join(some, "; ")
}

// close releases the process. It waits for nobody.
func (r *run) close(process Process) {
	r.server.goSafely("Close", func() {
		if err := process.Close(); err != nil {
			r.server.logger.Debug("closing a process", "run", r.id, "error", r.server.redactor.text(err.Error()))
		}
	})
}

// serveStdin feeds the command if it was given an input. The function that it
// returns ends that, also in the middle of a write.
func (r *run) serveStdin(process Process) (closeStdin func()) {
	if !r.start.GetStdin() {
		return func() {}
	}
	w := process.Stdin()
	if isNil(w) {
		r.stop(stopInvalid(errors.New("the provider gave the command no stdin")))
		return func() {}
	}
	var once sync.Once
	closeStdin = func() {
		once.Do(func() {
			r.stdin.close()
			r.server.goSafely("closing stdin", func() {
				// The provider closes it too, when the command ends.
				if err := w.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
					r.server.logger.Debug("closing stdin", "run", r.id, "error", r.server.redactor.text(err.Error()))
				}
			})
		})
	}
	r.server.goSafely("Stdin", func() { r.feed(w, closeStdin) })
	return closeStdin
}

// deliver hands signals to the command one after the other.
func (r *run) deliver(process Process, over <-chan struct{}) {
	for {
		select {
		case sig := <-r.signals:
			r.delivering <- struct{}{}
			r.answer(sig, r.server.safely("Signal", func() error {
				return process.Signal(r.ctx, workspace.Signal(sig.GetName()))
			}))
			<-r.delivering
		case <-over:
			return
		}
	}
}

// awaitSignal lets the answer to a signal that is being delivered go before the
// outcome: the command may have ended by it, and its sender would be told that
// it had ended before.
func (r *run) awaitSignal() {
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case r.delivering <- struct{}{}:
		<-r.delivering
	case <-timer.C:
	}
}

// pumpAll reads both outputs until they end, which closes the channel.
func (r *run) pumpAll(process Process) <-chan struct{} {
	done := make(chan struct{})
	var both sync.WaitGroup
	for which, from := range [2]func() io.Reader{stdout: process.Stdout, stderr: process.Stderr} {
		both.Add(1)
		r.server.goSafely("output", func() {
			defer both.Done()
			err := r.server.safely("reading "+outputNames[which], func() error { return r.pump(which, from()) })
			if err != nil {
				r.stop(stopCause{err: stoppedBy(fmt.Errorf("reading its %s: %w", outputNames[which], err)), grace: workspace.StopGrace})
			}
		})
	}
	r.server.goSafely("output", func() { both.Wait(); close(done) })
	return done
}

// pump reads one output as fast as the host takes it.
func (r *run) pump(which int, from io.Reader) error {
	if isNil(from) {
		return nil
	}
	limit := r.start.GetOutputLimit()
	buf := make([]byte, minRead)
	empty := 0
	for {
		room := r.window.reserve(len(buf))
		into := buf[:room]
		if room == 0 {
			into = buf // read to be dropped
		}
		n, err := from.Read(into)
		if n < 0 || n > len(into) {
			r.window.queue(r.out, which, room, nil)
			return fmt.Errorf("the provider's reader gave %d bytes of %d", n, len(into))
		}
		keep := min(n, room)
		total := r.output.Add(int64(n))
		if limit > 0 && total > limit {
			keep = int(max(int64(keep)-(total-limit), 0))
			r.stop(r.overLimit())
		}
		r.window.queue(r.out, which, room, into[:keep])
		select {
		case <-r.stopped: // given up: nobody wants the rest
			return nil
		default:
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > 0:
			empty = 0
		default:
			if empty++; empty > maxEmptyReads {
				return io.ErrNoProgress
			}
		}
		if n == len(buf) && len(buf) < maxPipeRead {
			buf = make([]byte, 2*len(buf))
		}
	}
}
