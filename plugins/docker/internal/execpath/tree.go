package execpath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// stopAnswer is how long the keeper may take to answer beyond the grace and the
	// killing.
	stopAnswer = 30 * time.Second
	// killWait is how long is waited for what was killed, before it is reported
	// (contract C5).
	killWait = 2 * time.Second
	// firstLook and longestLook lie between two looks at what is left.
	firstLook   = 10 * time.Millisecond
	longestLook = 100 * time.Millisecond
)

// entry is a process in the container.
type entry struct {
	pid, parent, group, session int
	start                       string // told apart by it from another of the same pid
	state                       byte
	name                        string
}

// dead processes wait for their parent, and do nothing.
func (e entry) dead() bool { return e.state == 'Z' || e.state == 'X' }

// parseEntry reads /proc/PID/stat. The name is in parentheses and may hold some.
func parseEntry(line string) (entry, bool) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return entry{}, false
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return entry{}, false
	}
	e := entry{state: fields[0][0], start: fields[19], name: line[open+1 : end]}
	for to, text := range map[*int]string{&e.pid: strings.TrimSpace(line[:open]), &e.parent: fields[1], &e.group: fields[2], &e.session: fields[3]} {
		var err error
		if *to, err = strconv.Atoi(text); err != nil {
			return entry{}, false
		}
	}
	return e, true
}

// processTree follows what a run has started, however it detaches: by the variable
// in its environment, by session and group, and by parents that are known.
type processTree struct {
	ws    *Workspace
	run   string
	shell int
	known map[int]string // pid to start
}

// look returns the processes of the run that live, its own shell apart.
func (t *processTree) look(ctx context.Context) (members []entry, shell *entry, err error) {
	out, _, err := t.ws.keeper.ask(ctx, "processes "+runVariable+"="+t.run)
	if err != nil {
		return nil, nil, err
	}
	stats, marked, _ := bytes.Cut(out, []byte("\n\n"))
	var all []entry
	for line := range strings.SplitSeq(string(stats), "\n") {
		if e, ok := parseEntry(line); ok {
			all = append(all, e)
		}
	}
	seeds := map[int]bool{}
	for line := range strings.Lines(string(marked)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "/proc/"), "/")
		if pid, err := strconv.Atoi(name); err == nil {
			seeds[pid] = true
		}
	}
	tree := t.closure(all, seeds)
	for _, e := range tree {
		switch {
		case e.dead():
		case e.pid == t.shell:
			shell = &e
		default:
			members = append(members, e)
		}
	}
	return members, shell, nil
}

// closure adds to the seeds, and to what was known, their descendants and whoever
// shares a group or session with them. Those of the container's own first process
// are nobody's.
func (t *processTree) closure(all []entry, seeds map[int]bool) []entry {
	in := map[int]bool{}
	groups, sessions := map[int]bool{}, map[int]bool{}
	if t.shell > 1 {
		groups[t.shell], sessions[t.shell] = true, true
	}
	for changed := true; changed; {
		changed = false
		for _, e := range all {
			if in[e.pid] || e.pid == 1 {
				continue
			}
			start, known := t.known[e.pid]
			known = known && start == e.start
			if !seeds[e.pid] && !known && !in[e.parent] && !groups[e.group] && !sessions[e.session] {
				continue
			}
			in[e.pid], changed = true, true
			t.known[e.pid] = e.start
			// Zero is a group or session outside the container's view.
			if e.group > 1 {
				groups[e.group] = true
			}
			if e.session > 1 {
				sessions[e.session] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return !in[e.pid] })
}

func (t *processTree) signal(ctx context.Context, number int, to ...entry) error {
	if len(to) == 0 {
		return nil
	}
	var pids strings.Builder
	for _, e := range to {
		pids.WriteString(" " + strconv.Itoa(e.pid))
	}
	_, _, err := t.ws.keeper.ask(ctx, "kill -"+strconv.Itoa(number)+pids.String()+" 2>/dev/null")
	return err
}

// Stop ends the command's whole tree (contract C5).
func (p *process) Stop(grace time.Duration) (survivors string) {
	ctx, cancel := context.WithTimeout(p.ws.alive, grace+killWait+stopAnswer)
	defer cancel()
	p.mu.Lock()
	t := &processTree{ws: p.ws, run: p.run, shell: p.shellPID, known: map[int]string{}}
	p.mu.Unlock()
	left, err := t.stop(ctx, grace)
	p.release(err == nil && len(left) == 0)
	switch {
	case err != nil && p.ws.alive.Err() != nil:
		return "" // the keeper's end stops it
	case err != nil:
		if gone := p.ws.available(ctx); gone != nil {
			return ""
		}
		return err.Error()
	}
	var names []string
	for _, e := range left {
		names = append(names, fmt.Sprintf("%s (pid %d in the container, state %c)", e.name, e.pid, e.state))
	}
	return strings.Join(names, ", ")
}

// release ends the streams of a stopped command. Its shell has said its end by
// itself, or was killed.
func (p *process) release(stopped bool) {
	if p.exec == nil {
		return
	}
	timer := time.NewTimer(exitPause)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		// Its shell was killed, and what is on the way waits for who does not read.
		p.finish(0, errStopped)
		p.out.finish()
		p.errs.finish()
		_ = p.exec.Close()
	}
	if stopped {
		p.forgetRun()
	}
}

var errStopped = errors.New("the command was stopped")

// exitPause is how long the streams of a command whose processes are gone may take
// to tell so.
const exitPause = 500 * time.Millisecond

// Signals that a stop sends.
const (
	sigKill = 9
	sigTerm = 15
	sigStop = 19
)

// stop sends TERM, and KILL after the grace, and returns what is left.
func (t *processTree) stop(ctx context.Context, grace time.Duration) ([]entry, error) {
	deadline := time.Now().Add(grace)
	told := map[int]string{}
	for pause := firstLook; grace > 0; pause = min(2*pause, longestLook) {
		members, _, err := t.look(ctx)
		if err != nil {
			return nil, err
		}
		if len(members) == 0 {
			break
		}
		fresh := slices.DeleteFunc(slices.Clone(members), func(e entry) bool { return told[e.pid] == e.start })
		for _, e := range fresh {
			told[e.pid] = e.start
		}
		if err := t.signal(ctx, sigTerm, fresh...); err != nil {
			return nil, err
		}
		if wait := time.Until(deadline); wait <= 0 {
			break
		} else if err := sleep(ctx, min(wait, pause)); err != nil {
			return nil, err
		}
	}
	return t.kill(ctx)
}

// kill kills until nothing is left, or something has survived for too long.
func (t *processTree) kill(ctx context.Context) ([]entry, error) {
	var deadline time.Time // from the first look on, before which a keeper may have to start
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		members, shell, err := t.halt(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case len(members) == 0 && shell == nil:
			return nil, nil
		case len(members) == 0:
			// It tells the end by itself, unless it waits for who reads its output.
			if err := sleep(ctx, shellPause); err != nil {
				return nil, err
			}
			return nil, t.signal(ctx, sigKill, *shell)
		case deadline.IsZero():
			deadline = time.Now().Add(killWait)
		case time.Now().After(deadline):
			return members, nil
		}
		if err := t.signal(ctx, sigKill, members...); err != nil {
			return nil, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// haltRounds is how often what was found meanwhile is halted as well, before the
// killing begins all the same.
const haltRounds = 20

// halt stops all that is found, so that nobody starts anything while it is killed.
func (t *processTree) halt(ctx context.Context) (members []entry, shell *entry, err error) {
	halted := map[int]string{}
	for range haltRounds {
		if members, shell, err = t.look(ctx); err != nil {
			return nil, nil, err
		}
		fresh := slices.DeleteFunc(slices.Clone(members), func(e entry) bool { return halted[e.pid] == e.start })
		if len(fresh) == 0 {
			break
		}
		for _, e := range fresh {
			halted[e.pid] = e.start
		}
		if err := t.signal(ctx, sigStop, fresh...); err != nil {
			return nil, nil, err
		}
	}
	return members, shell, nil
}

// shellPause is how long a command's own shell has to tell that the command ended.
const shellPause = 50 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
