package settings

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{nil, `{}`},
		{[]string{"image=python:3.12-slim"}, `{"image":"python:3.12-slim"}`},
		{[]string{"cpus=2"}, `{"cpus":2}`},
		{[]string{"cpus=-2"}, `{"cpus":-2}`},
		{[]string{"cpus=1.5"}, `{"cpus":1.5}`},
		{[]string{"init=true"}, `{"init":true}`},
		{[]string{"tag='2'"}, `{"tag":"2"}`},
		{[]string{`tag="true"`}, `{"tag":"true"}`},
		{[]string{"mem=512m"}, `{"mem":"512m"}`},
		{[]string{"x="}, `{"x":""}`},
		{[]string{"x=a=b"}, `{"x":"a=b"}`},
		{[]string{"x=a: b"}, `{"x":"a: b"}`},
		{[]string{"x=- a"}, `{"x":"- a"}`},
		{[]string{"x=a #b"}, `{"x":"a #b"}`},
		{[]string{"x=.nan"}, `{"x":".nan"}`},
		{[]string{"x=*y"}, `{"x":"*y"}`},
		{[]string{"x= spaced "}, `{"x":" spaced "}`},
		{[]string{"x=[a, 2]"}, `{"x":["a",2]}`},
		{[]string{"x={a: 1}"}, `{"x":{"a":1}}`},
		{[]string{"env.A=1", "env.B=two", "env.my.name='q'"}, `{"env":{"A":"1","B":"two","my.name":"'q'"}}`},
		{[]string{"opts.A=1", "opts.b.c=two"}, `{"opts":{"A":1,"b":{"c":"two"}}}`},
		{[]string{"x=1", "x=2"}, `{"x":2}`},
		{[]string{"x={a: 1}", "x.b=2"}, `{"x":{"a":1,"b":2}}`},
	} {
		config, err := Config(tt.pairs)
		if err != nil {
			t.Errorf("Config(%q): %v", tt.pairs, err)
			continue
		}
		if got, err := json.Marshal(config); err != nil || string(got) != tt.want {
			t.Errorf("Config(%q) = %s, %v, want %s", tt.pairs, got, err, tt.want)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"image"}, "want KEY=VALUE"},
		{[]string{"=x"}, "a name is missing"},
		{[]string{"a..b=x"}, "a name is missing"},
		{[]string{"a=1", "a.b=2"}, "plain value"},
		{[]string{"env=1", "env.b=2"}, "plain value"},
		{[]string{"env.=2"}, "a name is missing"},
		{[]string{"key='secret"}, "not valid YAML"},
		{[]string{"key=[secret"}, "not valid YAML"},
	} {
		_, err := Config(tt.pairs)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Config(%q): %v, want an error with %q", tt.pairs, err, tt.want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("Config(%q): %v repeats the value", tt.pairs, err)
		}
	}
}

func TestLabels(t *testing.T) {
	got, err := Labels([]string{"a=1", "b=", "a=2=3"})
	if err != nil || len(got) != 2 || got["a"] != "2=3" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, in := range []string{"", "a", "=x"} {
		if got, err := Labels([]string{in}); err == nil {
			t.Errorf("Labels(%q) = %q, want an error", in, got)
		}
	}
}
