// Package runtimes makes the images of the configuration key `runtime`: an
// environment by name, such as `python-datascience`, or one that is described by
// a base image and what to install on it. An image is built once on an engine,
// under a name that holds a digest of its recipe, and used by whoever asks for the
// same recipe after.
//
// [Parse] reads the key, [Runtime.Ensure] has the image.
package runtimes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// Package managers.
const (
	Pip   = "pip"
	Npm   = "npm"
	Apt   = "apt"
	Cargo = "cargo"
)

const (
	defaultWorkDir        = "/workspace"
	defaultPackageManager = Pip
)

// Runtime is an environment for commands. [Parse] makes one that is valid.
type Runtime struct {
	// Name tells runtimes apart: a later recipe of a name supersedes an earlier one.
	Name        string
	Description string
	// Image is ready-made: nothing is built. It or BaseImage is set.
	Image string
	// BaseImage is what the rest is installed on.
	BaseImage string
	// SetupCommands run as root, under /bin/sh, before the packages are installed.
	SetupCommands []string
	// Packages are installed by PackageManager.
	Packages       []string
	PackageManager string
	// Env travels with each command and is never in the image or a container's
	// description (contract B7, C9). The build does not see it either: an image's
	// history would show it.
	Env map[string]string
	// WorkDir is where commands start.
	WorkDir string
	// RunAsUID is the user that commands run as, with an account, a home and, for
	// pip, a Python environment of its own; zero leaves the image's user.
	RunAsUID int
}

// Parse reads the configuration key runtime: the name of a built-in one, or an
// object. Its errors wrap [workspace.ErrInvalid] and name the key.
func Parse(raw json.RawMessage) (Runtime, error) {
	raw = bytes.TrimSpace(raw)
	if bytes.HasPrefix(raw, []byte("{")) {
		return parseObject(raw)
	}
	var name string
	if json.Unmarshal(raw, &name) != nil {
		return Runtime{}, invalid("runtime", "want the name of a built-in runtime or an object")
	}
	if r, ok := builtin(name); ok {
		return r, nil
	}
	return Runtime{}, invalid("runtime", "there is no built-in runtime %q (there are %s); another one is written as an object with name and base_image", name, strings.Join(Names(), ", "))
}

// invalid is an error about one configuration key.
func invalid(key, format string, args ...any) error {
	return fmt.Errorf("config key %s: %s: %w", key, fmt.Sprintf(format, args...), workspace.ErrInvalid)
}

// The keys of a runtime that is an object.
const (
	keyName           = "name"
	keyDescription    = "description"
	keyImage          = "image"
	keyBaseImage      = "base_image"
	keyPackages       = "packages"
	keyPackageManager = "package_manager"
	keySetupCommands  = "setup_commands"
	keyEnvVars        = "env_vars"
	keyWorkDir        = "work_dir"
	keyRunAsUID       = "run_as_uid"
)

func parseObject(raw json.RawMessage) (Runtime, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return Runtime{}, invalid("runtime", "not JSON")
	}
	var r Runtime
	fields := map[string]struct {
		into any
		want string
	}{
		keyName:           {&r.Name, "a string"},
		keyDescription:    {&r.Description, "a string"},
		keyImage:          {&r.Image, "a string"},
		keyBaseImage:      {&r.BaseImage, "a string"},
		keyPackages:       {&r.Packages, "a list of strings"},
		keyPackageManager: {&r.PackageManager, "a string"},
		keySetupCommands:  {&r.SetupCommands, "a list of strings"},
		keyEnvVars:        {&r.Env, "an object of strings"},
		keyWorkDir:        {&r.WorkDir, "a string"},
		keyRunAsUID:       {&r.RunAsUID, "a whole number"},
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, ok := fields[key]
		if !ok {
			return Runtime{}, invalid("runtime."+key, "is unknown (known: %s)", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := json.Unmarshal(object[key], field.into); err != nil {
			// The value may be a secret: only its kind is told.
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) {
				kind, _, _ := strings.Cut(wrong.Value, " ")
				return Runtime{}, invalid("runtime."+key, "holds a %s, want %s", kind, field.want)
			}
			return Runtime{}, invalid("runtime."+key, "want %s", field.want)
		}
		if key == keyRunAsUID && r.RunAsUID == 0 && string(object[key]) != "null" {
			return Runtime{}, invalid("runtime."+key, "0 is root: leave the key out to run as the image says, or give the uid of an unprivileged user")
		}
	}
	if err := r.check(); err != nil {
		return Runtime{}, err
	}
	return r.withDefaults(), nil
}

func (r Runtime) withDefaults() Runtime {
	if r.WorkDir == "" {
		r.WorkDir = defaultWorkDir
	}
	if r.PackageManager == "" && r.BaseImage != "" {
		r.PackageManager = defaultPackageManager
	}
	return r
}
