//go:build docker

package docker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestHostile_CommandsAgainstTheirGuest: commands may do to their own guest what its
// user can, which must end in prompt errors there and touch nothing elsewhere.
func TestHostile_CommandsAgainstTheirGuest(t *testing.T) {
	t.Parallel()
	const socket = "/.berth/run/guest/socket"
	const head = "import os,socket,sys,time,threading\nS='" + socket + "'\n"
	serve := func(answer string) string {
		return head + "os.unlink(S); s=socket.socket(socket.AF_UNIX); s.bind(S); s.listen(500)\n" +
			"def a(c):\n try:\n  " + answer + "\n except OSError: pass\n" +
			"print('ready',flush=True)\n" +
			"while True:\n c,_=s.accept(); threading.Thread(target=a,args=(c,),daemon=True).start()\n"
	}
	for name, test := range map[string]struct {
		program string
		mends   bool // the guest is as before when the program has ended
	}{
		"silence":       {serve("time.sleep(1000)"), false},
		"an end":        {serve("c.close()"), false},
		"garbage":       {serve("c.sendall(os.urandom(1<<20)); time.sleep(1000)"), false},
		"endless zeros": {serve("\n  while True: c.sendall(bytes(1<<16))"), false},
		"a flood": {head + "l=[]\nfor i in range(300):\n c=socket.socket(socket.AF_UNIX); c.settimeout(1)\n try: c.connect(S); l.append(c)\n except OSError: pass\n" +
			"print('ready',flush=True)\ntime.sleep(1000)", true},
		"garbage to it": {head + "def f():\n while True:\n  try:\n   c=socket.socket(socket.AF_UNIX); c.connect(S); c.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'+os.urandom(1<<16)); c.close()\n  except OSError: time.sleep(.01)\n" +
			"for i in range(4): threading.Thread(target=f,daemon=True).start()\nprint('ready',flush=True)\ntime.sleep(1000)", true},
		"a full folder": {head + "d=os.path.dirname(S)\ntry:\n f=open(d+'/fill','wb')\n for i in range(4096): f.write(bytes(1<<16)); f.flush()\nexcept OSError as e: print(e,file=sys.stderr)\nprint('ready',flush=True)\ntime.sleep(1000)", true},
		"no folder":     {head + "d=os.path.dirname(S)\nfor f in os.listdir(d): os.unlink(d+'/'+f)\nos.rmdir(d)\nprint('ready',flush=True)\ntime.sleep(1000)", false},
		"stopped":       {head + "import signal\nfor p in os.listdir('/proc'):\n if p.isdigit() and int(p)!=os.getpid():\n  try:\n   if b'berth-guest' in open('/proc/'+p+'/cmdline','rb').read(): os.kill(int(p),signal.SIGSTOP)\n  except OSError: pass\nprint('ready',flush=True)\ntime.sleep(1000)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "debian", map[string]any{"mem_limit": "1g"})
			ws, other := b.open(t), b.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ready := &notice{word: "ready", seen: make(chan struct{})}
			p, err := ws.Start(ctx, workspace.Command{Args: []string{"python3", "-c", test.program}, Stdout: ready, Env: map[string]string{"PYTHONUNBUFFERED": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				res, err := p.Wait()
				if err == nil {
					err = fmt.Errorf("exit code %d: %s", res.ExitCode, res.Stderr)
				}
				ended <- err
			}()
			select {
			case <-ready.seen:
			case err := <-ended:
				t.Fatalf("the program ended: %v", err)
			case <-time.After(time.Minute):
				t.Fatal("the program does not begin")
			}
			before := b.host.Providers()[0]
			b.killIn(t.Context(), ref(t, ws).ID, "berth-guest connect")
			for range 3 {
				began := time.Now()
				call, done := context.WithTimeout(t.Context(), time.Minute)
				_, err := ws.Run(call, workspace.Command{Args: []string{"true"}})
				done()
				t.Logf("a command took %v: %.900v", time.Since(began).Round(time.Millisecond), err)
				var plugin *workspace.PluginError
				if err != nil && !errors.As(err, &plugin) && !errors.Is(err, workspace.ErrTransient) {
					t.Errorf("a command in the workspace itself: %v", err)
				}
				if time.Since(began) > 50*time.Second {
					t.Errorf("a command in the workspace itself took %v: %v", time.Since(began), err)
				}
				began = time.Now()
				if got := output(t, other, "echo fine"); got != "fine\n" || time.Since(began) > 20*time.Second {
					t.Errorf("in another workspace after %v: %q", time.Since(began), got)
				}
			}
			if after := b.host.Providers()[0]; after.PID != before.PID || after.Restarts != before.Restarts {
				t.Errorf("the plugin was %+v and is %+v", before, after)
			}
			cancel()
			<-ended
			if u := measure(t, b.host); u.pluginKiB > 256<<10 {
				t.Errorf("the plugin has %d KiB", u.pluginKiB)
			}
			if test.mends {
				eventually(t, "the workspace works again", func() bool {
					res, err := ws.Run(t.Context(), workspace.Command{Script: "pkill -KILL python3; rm -f /.berth/run/guest/fill; echo back"})
					return err == nil && strings.Contains(string(res.Stdout), "back")
				})
			}
			// A stop and a start make any of them whole.
			b.stop(t, ref(t, ws))
			again, err := b.host.Attach(ref(t, ws))
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, again, "echo whole"); got != "whole\n" {
				t.Errorf("after a stop: %q", got)
			}
		})
	}
}

// notice tells when a word was written.
type notice struct {
	word string
	text strings.Builder
	seen chan struct{}
}

func (n *notice) Write(p []byte) (int, error) {
	before := strings.Contains(n.text.String(), n.word)
	n.text.Write(p)
	if !before && strings.Contains(n.text.String(), n.word) {
		close(n.seen)
	}
	return len(p), nil
}
