//go:build gateway

package gateway_test

import (
	"encoding/xml"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/berth-dev/berth/test/docker/enginetest"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// ruleCount is how many rules the suite has.
const ruleCount = 40

// asRoot is the rule that cannot be checked where commands are root.
var asRoot = map[string]string{
	"test_permission_denied_uses_builtin_error": "root is denied nothing",
}

// TestRules holds Pydantic AI's rules for workspaces against berth, through the
// client that exists, as it is.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		setup   func(t *testing.T) setup
		skipped map[string]string // rules that are, and why; all others pass
	}{
		{"docker", dockerAsUser, nil},
		{"docker as root", dockerAsRoot, asRoot},
		{"local", func(*testing.T) setup { return setup{providers: map[string]any{"local": map[string]any{}}} }, nil},
		{"sandboxd", sandboxd, asRoot},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			python(t) // or there is nothing to set up for
			with := c.setup(t)
			s := serve(t, with)
			outcomes := rules(t, s)
			if len(outcomes) != ruleCount {
				t.Errorf("the suite has %d rules, want %d", len(outcomes), ruleCount)
			}
			for name, got := range outcomes {
				switch reason := c.skipped[name]; {
				case got.Failure != nil:
					t.Errorf("%s fails:\n%s", name, end(got.Failure.Text))
				case got.Error != nil:
					t.Errorf("%s cannot be checked:\n%s", name, end(got.Error.Text))
				case got.Skipped != nil && reason == "":
					t.Errorf("%s is skipped, for no reason that is known: %s", name, got.Skipped.Message)
				case got.Skipped == nil && reason != "":
					t.Errorf("%s passes, and is said to be skipped because %s", name, reason)
				}
			}
			for name := range c.skipped {
				if _, ok := outcomes[name]; !ok {
					t.Errorf("%s is no rule", name)
				}
			}
			if body := s.want(t, http.StatusOK, "GET", "/sessions", nil); !strings.Contains(body, `"sessions":[]`) {
				t.Errorf("all were destroyed, and there are sessions: %s", body)
			}
			if with.containers != nil {
				if left := with.containers(t); len(left) > 0 {
					t.Errorf("all were destroyed, and there are containers: %v", left)
				}
			}
		})
	}
}

// dockerProvider is a provider of a name that nobody else has.
func dockerProvider(t *testing.T, image string, config map[string]any) (name string, providers map[string]any) {
	t.Helper()
	name = enginetest.Unique(t)
	config["image"], config["network_mode"] = enginetest.Image(t, image), "none"
	return name, map[string]any{name: map[string]any{"plugin": "docker", "config": config, "conventional_env": true}}
}

// containers are those of a provider, that run or not, with their states.
func containers(t *testing.T, provider string) (found []string) {
	t.Helper()
	list, err := enginetest.Client(t).ContainerList(t.Context(), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", "dev.berth.provider="+provider)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		found = append(found, c.ID[:12]+" "+c.State)
	}
	return found
}

// dockerAsUser has commands of an unprivileged user in the container, and a berth
// that is no more than in the group of the engine's socket.
func dockerAsUser(t *testing.T) setup {
	name, providers := dockerProvider(t, "debian", map[string]any{"user": "1000:1000"})
	with := setup{providers: providers, containers: func(t *testing.T) []string { return containers(t, name) }}
	address := enginetest.Client(t).DaemonHost()
	if path, ok := strings.CutPrefix(address, "unix://"); ok && os.Geteuid() == 0 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		with.groups = []uint32{info.Sys().(*syscall.Stat_t).Gid}
	}
	return with
}

func dockerAsRoot(t *testing.T) setup {
	name, providers := dockerProvider(t, "busybox", map[string]any{})
	return setup{providers: providers, asRoot: true, containers: func(t *testing.T) []string { return containers(t, name) }}
}

// sandboxd is the real service, whose sessions are served again.
func sandboxd(t *testing.T) setup {
	service := sandboxdtest.Start(t, nil)
	return setup{containers: func(t *testing.T) []string { return service.Containers(t) }, providers: map[string]any{"rented": map[string]any{
		"plugin": "sandboxd", "config": map[string]any{"service_url": service.URL, "token": service.Token},
	}}}
}

// outcome is how a rule came out, in JUnit's terms.
type outcome struct {
	Name    string `xml:"name,attr"`
	Failure *struct {
		Text string `xml:",chardata"`
	} `xml:"failure"`
	Error *struct {
		Text string `xml:",chardata"`
	} `xml:"error"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
}

// rules runs the suite on a gateway's default runtime.
func rules(t *testing.T, s *server) map[string]outcome {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	cmd := pythonCommand(t, s, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", report, "test_rules.py")
	text, err := cmd.CombinedOutput()
	t.Logf("%v: %s", err, end(string(text)))
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var suites struct {
		Cases []outcome `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	outcomes := make(map[string]outcome, len(suites.Cases))
	for _, c := range suites.Cases {
		outcomes[c.Name] = c
	}
	return outcomes
}

// end is the end of a text, where pytest says what was wrong.
func end(text string) string { return text[max(0, len(text)-2000):] }
