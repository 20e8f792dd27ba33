package sandboxd

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// DefaultRequestTimeout is for a request that the service need only answer: it
	// takes milliseconds, and a loaded service some seconds.
	DefaultRequestTimeout = 30 * time.Second
	// DefaultOpeningTimeout is for a session to open, which may build an image.
	DefaultOpeningTimeout = 10 * time.Minute
)

// Config is the provider's configuration.
type Config struct {
	// ServiceURL is where the service is.
	ServiceURL string `json:"service_url" jsonschema:"required,pattern=^https?://[^/?#@\\s]+(/[^?#\\s]*)?$,example=http://127.0.0.1:8765,description=Where the service is: http://HOST:PORT or https://…"`
	// Token is the service's own.
	Token string `json:"token" jsonschema:"required,minLength=1,pattern=^[!-~]+$,description=The service's token." berth:"secret"`
	// Runtime is the service's name for an image.
	Runtime string `json:"runtime,omitempty" jsonschema:"description=The service's name for what sessions run. By default the service's own default." berth:"per_workspace"`
	// Tenant labels sessions. By default it is berth- and the provider's name.
	Tenant string `json:"tenant,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,example=team-a,description=A label of sessions by which this provider knows its own and the service counts. By default berth- and the provider's name."`
	// Env is every command's.
	Env map[string]string `json:"env,omitempty" jsonschema:"description=Variables of every command. They travel with each command." berth:"per_workspace"`
	// SessionName is the one session of this provider.
	SessionName string `json:"session_name,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,example=build-box,description=The one session of this provider: made on first use and attached after. It may be somebody else's."`
	// RequestTimeout is in seconds.
	RequestTimeout float64 `json:"request_timeout,omitempty" jsonschema:"minimum=0,maximum=31536000,description=Seconds that the service may take to answer. By default 30."`
	// OpeningTimeout is in seconds.
	OpeningTimeout float64 `json:"opening_timeout,omitempty" jsonschema:"minimum=0,maximum=31536000,description=Seconds that a session may take to open; the first one may build an image. By default 600."`
	// CAFile are the certificates that the service's is checked with.
	CAFile string `json:"ca_file,omitempty" jsonschema:"description=A PEM file of the authorities that may have signed the service's certificate. By default the system's." berth:"path"`
}

// Plugin is the plugin of this package, to be served.
func Plugin(version string) sdk.Plugin[Config] {
	return sdk.Plugin[Config]{Name: "sandboxd", Version: version, New: New, Workspace: (*session)(nil)}
}

// identifier is the service's grammar of session ids and tenants.
var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// header is what the service takes for a token: it reads no others from a header.
var header = regexp.MustCompile(`^[!-~]+$`)

const (
	maxIdentifier = 64
	tenantPrefix  = "berth-"
)

// New checks the configuration. It asks the service for nothing.
func New(_ context.Context, config Config, env sdk.Env) (sdk.Provider, error) {
	for _, key := range []struct{ name, value string }{{"session_name", config.SessionName}, {"tenant", config.Tenant}} {
		if key.value != "" && !identifier.MatchString(key.value) {
			return nil, fmt.Errorf("config key %s: %q: want 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit: %w", key.name, key.value, workspace.ErrInvalid)
		}
	}
	if config.Tenant == "" {
		config.Tenant = tenantPrefix + env.Provider[:min(len(env.Provider), maxIdentifier-len(tenantPrefix))]
	}
	if !header.MatchString(config.Token) {
		return nil, fmt.Errorf("config key token: want visible ASCII characters, without blanks and line ends: %w", workspace.ErrInvalid)
	}
	base, err := parseURL(config.ServiceURL)
	if err != nil {
		return nil, err
	}
	request, err := seconds("request_timeout", config.RequestTimeout, DefaultRequestTimeout)
	if err != nil {
		return nil, err
	}
	opening, err := seconds("opening_timeout", config.OpeningTimeout, DefaultOpeningTimeout)
	if err != nil {
		return nil, err
	}
	c, err := newClient(base, config.Token, config.CAFile, request)
	if err != nil {
		return nil, err
	}
	logger := env.Logger
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return &provider{config: config, client: c, opening: max(opening, request), logger: logger}, nil
}

// parseURL refuses what would send the token somewhere else, or in the clear text of
// a URL.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The error quotes the URL, which may hold a password.
		return nil, fmt.Errorf("config key service_url is no URL: %w", workspace.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", !validPort(u.Port()):
		return nil, fmt.Errorf("config key service_url: want http://HOST:PORT or https://…: %w", workspace.ErrInvalid)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("config key service_url: no user, query or fragment (the token has a key of its own): %w", workspace.ErrInvalid)
	}
	return u, nil
}

// validPort reports whether there is such a port; without one it is the scheme's.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// maxSeconds is a year: more does not fit a duration, and means nothing.
const maxSeconds = 365 * 24 * 3600

// minSeconds is less than any answer takes.
const minSeconds = 0.001

func seconds(key string, value float64, byDefault time.Duration) (time.Duration, error) {
	switch {
	case value == 0:
		return byDefault, nil
	case value < minSeconds || value > maxSeconds:
		return 0, fmt.Errorf("config key %s: %v: want %v to %d seconds: %w", key, value, minSeconds, maxSeconds, workspace.ErrInvalid)
	}
	return time.Duration(value * float64(time.Second)), nil
}
