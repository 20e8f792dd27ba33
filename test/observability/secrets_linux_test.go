package observability_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// Secrets, each on another way in.
const (
	theToken   = "t0ken-of-the-configuration"
	theEnv     = "v4lue-of-the-configured-env"
	theCommand = "v4lue-of-a-commands-env"
	// theKey has several lines, and what is written in other ways where it is quoted.
	theKey = "-----BEGIN \"KEY\"-----\nMIIEvQ+k3y/m4terial&more=\n-----END-----\n"
)

// TestNoSecretIsTold (contract B7): whatever a plugin does with what it knows.
func TestNoSecretIsTold(t *testing.T) {
	for _, plugin := range []string{current, older} {
		t.Run(plugin, func(t *testing.T) {
			c := export(t, "grpc")
			t.Setenv(tokenVariable, theToken)
			exporter := tracer(t)
			reader := metric.NewManualReader()
			var log lines
			h, ws := open(t, plugin, func(c *host.Config, p *host.Provider) {
				c.TracerProvider = exporter.Provider()
				c.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
				c.Logger = log.logger(hclog.Trace)
				p.Config["token"] = theToken
				p.Config["env"] = map[string]any{"SECRET": theEnv, "KEY": theKey}
				p.InheritEnv = []string{tokenVariable}
			})
			if err := h.SetLogLevel(plugin, hclog.Trace); err != nil {
				t.Error(err)
			}
			texts := provoke(t, ws)
			for _, p := range h.Providers() {
				texts = append(texts, fmt.Sprintf("%+v", p))
			}
			events, err := h.Events(plugin)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, fmt.Sprintf("%+v", events))
			c.Await(t, embedder+":remove "+plugin) // the last one
			if plugin == current {
				c.Await(t, wire.BinaryPrefix+plugin+":berth.v1.Provider/Remove")
			}
			log.await(t, "spoke with [redacted]")
			log.await(t, "and ends here")
			log.await(t, "a record of debug")
			if plugin == current {
				log.await(t, "a record of trace")
			}

			var figures metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &figures); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(figures)
			if err != nil {
				t.Fatal(err)
			}
			spans := c.Raw()
			texts = append(texts, string(text), log.String(), spans)
			for _, text := range texts {
				for _, secret := range []string{theToken, theEnv, theCommand, "m4terial", base64.StdEncoding.EncodeToString([]byte(theToken))} {
					if i := strings.Index(text, secret); i >= 0 {
						t.Errorf("%s is told: …%s…", secret, text[max(i-200, 0):min(i+len(secret)+50, len(text))])
					}
				}
			}
			if plugin == current && !strings.Contains(spans, "call [redacted]") {
				t.Error("the provider's own span did not come: it would have told the token")
			}
			if !strings.Contains(spans, `"transient"`) && !strings.Contains(spans, `"unavailable"`) {
				t.Error("no span tells of the error that held the token")
			}
		})
	}
}

// provoke has a plugin come by each secret and fail with it, and returns the texts of
// the errors.
func provoke(t *testing.T, ws workspace.Workspace) (texts []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ws.WriteFile(t.Context(), "dir-"+theToken+"/"+nested, []byte(theToken)))
	must(ws.WriteFile(t.Context(), speak, nil))
	for _, name := range []string{speak, "dir-" + theToken + "/" + nested} {
		_, err := ws.Stat(t.Context(), name)
		must(err)
	}
	_, err := ws.Stat(t.Context(), leak)
	if err == nil {
		t.Fatal("the plugin did not fail")
	}
	var path interface{ Unwrap() error }
	if errors.As(err, &path) {
		texts = append(texts, path.Unwrap().Error())
	}
	texts = append(texts, err.Error())
	env := map[string]string{"SECRET": theCommand}
	for _, cmd := range []workspace.Command{
		{Script: `test -n "$SECRET"; exit 4`, Env: env},
		{Script: `sleep 60`, Env: env, Timeout: 50 * time.Millisecond},
		{Script: `echo "$SECRET"`, Env: env, OutputLimit: 3},
		{Args: []string{"no-such-program"}, Env: env},
		{Script: "true", Env: env, Dir: "no-such-folder"},
	} {
		if _, err := ws.Run(t.Context(), cmd); err != nil {
			texts = append(texts, err.Error())
		}
	}
	must(ws.Remove(t.Context(), speak))
	return texts
}
