package host

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSectionIsReadAsStrictlyAsTheRest(t *testing.T) {
	config, err := parseConfig("berth.yaml", "/etc/berth", []byte(`
providers: {local: {}}
gateway:
  text: "a${A}"
  path: ./x
  number: 7
  large: 9223372036854775807
  plain: 90
  units: 1h30m
  variable: "${SECONDS}"
  object: {a: 1, b: "${A}"}
  nothing:
`), lookup(map[string]string{"A": "s3cret", "SECONDS": "60"}))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]any)
	err = config.Section("gateway").Each(func(key string, s Section) (err error) {
		switch key {
		case "text":
			got[key], err = s.Text()
		case "path":
			got[key], err = s.Path()
		case "number", "large":
			got[key], err = s.Integer()
		case "plain", "units", "variable":
			got[key], err = s.Duration()
		case "object":
			got[key], err = s.Object()
		case "nothing":
			got[key] = s.Exists()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"text": "as3cret", "path": "/etc/berth/x", "number": int64(7), "large": int64(9223372036854775807),
		"plain": 90 * time.Second, "units": 90 * time.Minute, "variable": time.Minute,
		"object": map[string]any{"a": uint64(1), "b": "s3cret"}, "nothing": false,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func TestSectionTellsWhereAndWhy(t *testing.T) {
	number := func(s Section) error { _, err := s.Integer(); return err }
	text := func(s Section) error { _, err := s.Text(); return err }
	duration := func(s Section) error { _, err := s.Duration(); return err }
	object := func(s Section) error { _, err := s.Object(); return err }
	each := func(s Section) error { return s.Each(func(string, Section) error { return nil }) }
	for name, test := range map[string]struct {
		value string
		read  func(Section) error
		want  string
	}{
		"a text for a number":      {"s3cret", number, "want a whole number"},
		"a negative number":        {"-1", number, "want a whole number"},
		"a fraction":               {"1.5", number, "want a whole number"},
		"a number beyond bounds":   {"18446744073709551615", number, "want a whole number"},
		"a number for a text":      {"1", text, "want a string, not a number"},
		"an unset variable":        {"s3cret${NOPE}", text, "NOPE is not set"},
		"no duration":              {"s3cret", duration, "want a number of seconds"},
		"a negative duration":      {"-5s", duration, "want a number of seconds"},
		"more seconds than fit":    {"9223372036854775807", duration, "want a number of seconds"},
		"a list for a duration":    {"[s3cret]", duration, "not a list"},
		"a text for an object":     {"s3cret", object, "want a mapping, not a string"},
		"a text for a mapping":     {"s3cret", each, "want a mapping, not a string"},
		"the same key twice":       {"{a: 1, a: s3cret}", each, "is there twice"},
		"a key that is not known":  {"1", func(s Section) error { return s.Unknown("tokn", "token", "store") }, "did you mean token?"},
		"what its reader says":     {"1", func(s Section) error { return s.Fault("is wrong") }, "is wrong"},
		"nothing, and a complaint": {"", func(s Section) error { return s.Fault("is wrong") }, "is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := parseConfig("berth.yaml", "/", []byte("gateway:\n  key: "+test.value+"\n"), lookup(nil))
			if err != nil {
				t.Fatal(err)
			}
			err = config.Section("gateway").Each(func(_ string, s Section) error { return test.read(s) })
			var fault *ConfigError
			if !errors.As(err, &fault) {
				t.Fatalf("%v", err)
			}
			if fault.File != "berth.yaml" || fault.Line != 2 || !strings.HasPrefix(fault.Key, "gateway.key") || !strings.Contains(fault.Reason, test.want) {
				t.Errorf("%v\nwant line 2, gateway.key, %q", err, test.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("repeats a value: %v", err)
			}
		})
	}
}

func TestSectionThatIsNotThereIsEmpty(t *testing.T) {
	var s Section
	called := false
	if err := s.Each(func(string, Section) error { called = true; return nil }); err != nil || called || s.Exists() {
		t.Errorf("%v, called %v, exists %v", err, called, s.Exists())
	}
	if object, err := s.Object(); object != nil || err != nil {
		t.Errorf("%v, %v", object, err)
	}
	var fault *ConfigError
	if _, err := s.Text(); !errors.As(err, &fault) {
		t.Errorf("%v", err)
	}
}

// A program that only speaks to another one need not have its variables.
func TestLoadSectionsNeedsNoVariableOfAProvider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.yaml")
	text := "plugin_dirs: ['${NOT_SET_HERE}']\nproviders: {a: {config: {key: '${NOT_SET_HERE}'}}}\ndata_dir: ./data\nadmin_socket: ./run/admin.sock\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(file); err == nil {
		t.Error("LoadConfig needs no variable either")
	}
	config, err := LoadSections(file)
	if err != nil {
		t.Fatal(err)
	}
	path, err := config.Section("admin_socket").Path()
	if want := filepath.Join(filepath.Dir(file), "run", "admin.sock"); err != nil || path != want {
		t.Errorf("admin_socket: %s, %v, want %s", path, err, want)
	}
	if want := filepath.Join(filepath.Dir(file), "data"); config.DataFolder() != want {
		t.Errorf("data_dir: %s, want %s", config.DataFolder(), want)
	}
}
