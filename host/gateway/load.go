package gateway

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/host"
)

// LoadConfig reads the gateway's section of a configuration file:
//
//	gateway:
//	  listen: 127.0.0.1:8787
//	  token: "${BERTH_TOKEN}"
//	  store: sqlite:./sessions.db
//	  default_runtime: python
//	  runtimes:
//	    python: {provider: docker, config: {image: python:3.12-slim}, description: Python 3.12}
//	  max_sessions: 50
//	  execute_timeout: 10m
//
// Without runtimes each configured provider is one, under its own name; without a
// default runtime the first that the file has is it, or the first provider by name;
// without a store the records are in the data folder. The caller adds Host, and a
// token if there is none. Errors are [*host.ConfigError] values.
func LoadConfig(file host.Config) (Config, error) {
	config := Config{Store: "sqlite:" + filepath.Join(file.DataFolder(), "gateway", "sessions.db")}
	section := file.Section("gateway")
	var fallback host.Section // default_runtime
	first := ""
	err := section.Each(func(key string, value host.Section) (err error) {
		switch key {
		case "listen":
			config.Listen, err = listen(value)
		case "token":
			if config.Token, err = value.Text(); err == nil {
				if fault := tokenFault(config.Token); fault != "" {
					return value.Fault(fault)
				}
			}
		case "store":
			config.Store, err = storeText(value)
		case "tls":
			config.TLS, err = loadTLS(value)
		case "default_runtime":
			fallback = value
			config.DefaultRuntime, err = value.Text()
		case "runtimes":
			config.Runtimes, first, err = loadRuntimes(value, file)
		case "drain_timeout":
			if config.DrainTimeout, err = value.Duration(); err == nil && config.DrainTimeout == 0 {
				return value.Fault("want more than zero")
			}
		default:
			known, err := config.Policy.load(key, value)
			if err == nil && !known {
				return value.Unknown(key, append(slices.Clone(policyKeys), "listen", "token", "store", "tls", "default_runtime", "runtimes", "drain_timeout")...)
			}
			return err
		}
		return err
	})
	if err != nil {
		return Config{}, err
	}
	if config.Runtimes == nil {
		config.Runtimes = make(map[string]Runtime, len(file.Providers))
		for name := range file.Providers {
			config.Runtimes[name] = Runtime{Provider: name}
		}
	}
	if !fallback.Exists() {
		config.DefaultRuntime = first
	} else if _, ok := config.Runtimes[config.DefaultRuntime]; !ok {
		return Config{}, fallback.Fault("is no runtime: there are " + strings.Join(config.aliases(), ", "))
	}
	return config, nil
}

// policyKeys are those of a [Policy], which are called as in GET /policy.
var policyKeys = []string{
	"max_sessions", "max_open_sessions", "max_sessions_per_tenant", "execute_timeout", "max_read_bytes",
	"evict_idle_after", "idle_timeout", "workspace_ttl", "container_ttl",
}

// load reads one key, if it is a policy's.
func (p *Policy) load(key string, value host.Section) (known bool, err error) {
	count := func(into **int) error {
		n, err := value.Integer()
		if err == nil && n > maxCount {
			err = value.Fault(fmt.Sprintf("want at most %d", maxCount))
		}
		if err != nil {
			return err
		}
		ceiling := int(n)
		*into = &ceiling
		return nil
	}
	life := func(into *time.Duration) error {
		d, err := value.Duration()
		if d == 0 {
			d = -1 // never, in so many words
		}
		*into = d
		return err
	}
	switch key {
	case "max_sessions":
		err = count(&p.MaxSessions)
	case "max_open_sessions":
		err = count(&p.MaxOpenSessions)
	case "max_sessions_per_tenant":
		err = count(&p.MaxSessionsPerTenant)
	case "execute_timeout":
		if p.ExecuteTimeout, err = value.Duration(); err == nil && p.ExecuteTimeout < time.Second {
			err = value.Fault("want at least a second")
		}
	case "max_read_bytes":
		if p.MaxReadBytes, err = value.Integer(); err == nil && p.MaxReadBytes == 0 {
			err = value.Fault("want more than zero")
		}
	case "evict_idle_after":
		err = life(&p.EvictIdleAfter)
	case "idle_timeout":
		err = life(&p.IdleTimeout)
	case "workspace_ttl":
		err = life(&p.WorkspaceTTL)
	case "container_ttl":
		err = life(&p.ContainerTTL)
	default:
		return false, nil
	}
	return true, err
}

// listen reads HOST:PORT or unix:PATH.
func listen(value host.Section) (string, error) {
	text, err := value.Text()
	if err != nil {
		return "", err
	}
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return "unix:" + value.ResolvePath(path), nil
	}
	if fault := listenFault(text); fault != "" {
		return "", value.Fault(fault)
	}
	return text, nil
}

// storeText reads a store, whose path begins at the file's folder. It may hold a
// password, and is not repeated.
func storeText(value host.Section) (string, error) {
	text, err := value.Text()
	if err != nil {
		return "", err
	}
	if path, ok := strings.CutPrefix(text, "sqlite:"); ok && path != "" {
		return "sqlite:" + value.ResolvePath(path), nil
	}
	if fault := storeFault(text); fault != "" {
		return "", value.Fault(fault)
	}
	return text, nil
}

func loadTLS(section host.Section) (*TLS, error) {
	if !section.Exists() {
		return nil, nil
	}
	config := new(TLS)
	err := section.Each(func(key string, value host.Section) (err error) {
		switch key {
		case "cert":
			config.Cert, err = value.Path()
		case "key":
			config.Key, err = value.Path()
		default:
			return value.Unknown(key, "cert", "key")
		}
		return err
	})
	if err == nil && (config.Cert == "" || config.Key == "") {
		err = section.Fault("want both cert and key")
	}
	return config, err
}

// loadRuntimes reads the runtimes, and which of them is the first.
func loadRuntimes(section host.Section, file host.Config) (runtimes map[string]Runtime, first string, err error) {
	runtimes = make(map[string]Runtime)
	err = section.Each(func(alias string, value host.Section) error {
		if !aliasName.MatchString(alias) {
			return value.Fault(aliasFault)
		}
		runtime := Runtime{Provider: alias}
		provider := value
		err := value.Each(func(key string, value host.Section) (err error) {
			switch key {
			case "provider":
				provider = value
				runtime.Provider, err = value.Text()
			case "config":
				runtime.section = value
				runtime.Config, err = value.Object()
			case "description":
				runtime.Description, err = value.Text()
			default:
				return value.Unknown(key, "provider", "config", "description")
			}
			return err
		})
		if err != nil {
			return err
		}
		if _, ok := file.Providers[runtime.Provider]; !ok {
			return provider.Fault("names no provider that is configured: there are " + strings.Join(slices.Sorted(maps.Keys(file.Providers)), ", "))
		}
		if len(runtimes) == 0 {
			first = alias
		}
		runtimes[alias] = runtime
		return nil
	})
	if err == nil && len(runtimes) == 0 {
		err = section.Fault("is empty: clients could open nothing. Without it each provider is a runtime of its own name")
	}
	return runtimes, first, err
}
