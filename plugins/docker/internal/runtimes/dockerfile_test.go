package runtimes

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// The Dockerfiles are read by people when a build fails: they are kept as files.
func TestDockerfiles(t *testing.T) {
	custom := map[string]string{
		"custom-pip-user":  `{"name":"ml","base_image":"python:3.12-slim","packages":["torch==2.5.*","uvicorn[standard]>=0.30,<1","numpy!=2.0"],"run_as_uid":1000}`,
		"custom-pip-none":  `{"name":"plain","base_image":"debian:12","run_as_uid":1000}`,
		"custom-npm-user":  `{"name":"web","base_image":"node:20-slim","package_manager":"npm","packages":["@types/node@^20"],"work_dir":"/app","run_as_uid":1001}`,
		"custom-apt":       `{"name":"tools","base_image":"debian:12","package_manager":"apt","packages":["git","g++","libstdc++6"]}`,
		"custom-cargo":     `{"name":"crab","base_image":"rust:1","package_manager":"cargo","packages":["ripgrep@14.1.0"],"work_dir":"/src"}`,
		"custom-setup":     `{"name":"setup","base_image":"localhost:5000/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","setup_commands":["echo 'a' && echo \"$HOME\" \\","cat <<EOF\nRUN evil\nEOF\nUSER 7"]}`,
		"custom-base-user": `{"name":"based","base_image":"jupyter/base-notebook","packages":["polars"]}`,
	}
	for _, name := range Names() {
		custom[name] = string(quote(name))
	}
	for name, raw := range custom {
		t.Run(name, func(t *testing.T) {
			r, err := Parse([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			baseUser := ""
			if name == "custom-base-user" {
				baseUser = "jovyan"
			}
			got := "# ready-made: " + r.Image + "\n"
			if r.Image == "" {
				got = dockerfile(r.instructions(baseUser))
			}
			file := filepath.Join("testdata", name+".Dockerfile")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the Dockerfile changed, and with it the image that everybody has (-update writes it):\n%s\nwant\n%s", got, want)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.Dockerfile")
	if err != nil || len(files) != len(custom) {
		t.Errorf("%d golden files for %d runtimes, %v", len(files), len(custom), err)
	}
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// Whatever a command holds, it stays one line of the Dockerfile.
func FuzzCommandIsOneInstruction(f *testing.F) {
	for _, s := range []string{"true", "a\nUSER 0", "a \\", "<<EOF\nx\nEOF", `"]`, "é\u2028x", "a\r\nRUN b", "# escape=`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		r := Runtime{Name: "x", BaseImage: "a", SetupCommands: []string{command}}
		if r.check() != nil {
			t.Skip("refused")
		}
		line := runInstruction(command)
		if strings.ContainsAny(line, "\n\r\x00") {
			t.Fatalf("%q became several lines: %q", command, line)
		}
		var argv []string
		form, ok := strings.CutPrefix(line, "RUN ")
		if !ok || json.Unmarshal([]byte(form), &argv) != nil || len(argv) != 3 || argv[2] != command {
			t.Fatalf("%q became %q", command, line)
		}
	})
}

func TestDigestIsOfTheRecipe(t *testing.T) {
	parse := func(extra string) Runtime {
		t.Helper()
		r, err := Parse([]byte(`{"name":"x","base_image":"debian:12"` + extra + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := parse("")
	for extra, same := range map[string]bool{
		`,"description":"words"`:     true,
		`,"env_vars":{"A":"secret"}`: true,
		`,"package_manager":"pip"`:   true,
		`,"work_dir":"/workspace"`:   true,
		`,"packages":["a"]`:          false,
		`,"setup_commands":["true"]`: false,
		`,"work_dir":"/other"`:       false,
		`,"run_as_uid":1000`:         false,
	} {
		if got := parse(extra).reference() == plain.reference(); got != same {
			t.Errorf("with %s the image is the same: %v, want %v", extra, got, same)
		}
	}
	if a, b := parse(`,"packages":["a","b"]`), parse(`,"packages":["b","a"]`); a.reference() == b.reference() {
		t.Error("the order of packages makes no difference")
	}
}
