package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// None is what stands in place of a path to turn the admin socket off.
	None = "none"
	// maxPath is the longest path of a unix socket on every system: macOS has 103,
	// Linux 107, without the final NUL.
	maxPath = 103
	// hashLength is enough of a hash to tell the configurations of one user apart.
	hashLength = 12
)

// Place is where the admin socket of one configuration's serve is.
type Place struct {
	// Config is the configuration's file, absolute, or empty for the built-in one.
	Config string
	// Paths are where the socket may be, best first: the serve takes the first that
	// it can. Empty is nowhere: the socket was turned off.
	Paths []string
	// Named says that somebody asked for just this path.
	Named bool
	// Shared is that of the paths which is in the temporary folder, where any user
	// could have made it: nobody's serve but this user's counts there, for root too.
	Shared string
}

// Locate tells where the admin socket of a configuration's serve is: at named,
// nowhere if that is [None], and if it is empty in $XDG_RUNTIME_DIR, the data
// folder, or the temporary folder, whichever can be used first. The error is about
// named alone.
func Locate(configFile, dataDir, named string) (Place, error) {
	place := Place{Named: named != ""}
	var err error
	if configFile != "" {
		if place.Config, err = filepath.Abs(configFile); err != nil {
			return Place{}, fmt.Errorf("admin socket: %w", err)
		}
	}
	switch {
	case named == None:
		return place, nil
	case named != "":
		path, err := filepath.Abs(named)
		if err != nil {
			return Place{}, fmt.Errorf("admin socket: %w", err)
		}
		if len(path) > maxPath {
			return Place{}, fmt.Errorf("admin socket %s: the path of a socket has at most %d bytes, and this one %d: %w", path, maxPath, len(path), workspace.ErrInvalid)
		}
		place.Paths = []string{path}
		return place, nil
	}
	sum := sha256.Sum256([]byte(place.Config))
	file := "admin-" + hex.EncodeToString(sum[:])[:hashLength] + ".sock"
	shared := below(os.TempDir(), fmt.Sprintf("berth-%d", os.Getuid()))
	for _, dir := range []string{below(os.Getenv("XDG_RUNTIME_DIR"), "berth"), below(dataDir, "run"), shared} {
		path := filepath.Join(dir, file)
		if filepath.IsAbs(dir) && len(path) <= maxPath && !slices.Contains(place.Paths, path) {
			place.Paths = append(place.Paths, path)
			if dir == shared {
				place.Shared = path
			}
		}
	}
	return place, nil
}

// below is a folder's own folder, and nothing if there is no folder.
func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// configuration names it for people.
func (p Place) configuration() string {
	if p.Config == "" {
		return "the built-in configuration"
	}
	return p.Config
}

// command is the command line of the serve that was looked for.
func (p Place) command() string {
	words := []string{"berth"}
	if p.Config != "" {
		words = append(words, "-c", p.Config)
	}
	words = append(words, "serve")
	if p.Named && len(p.Paths) > 0 {
		words = append(words, "--admin-socket", p.Paths[0])
	}
	return strings.Join(words, " ")
}

// NotServingError says that no serve of a configuration was found. It wraps the
// reasons, one for each place.
type NotServingError struct {
	Place   Place
	Reasons []error
}

func (e *NotServingError) Error() string {
	text := "no berth serve of " + e.Place.configuration() + " answers"
	if len(e.Place.Paths) == 0 {
		return text + ": its admin socket is turned off (admin_socket: none, or --admin-socket none)"
	}
	var reasons []string
	for _, err := range e.Reasons {
		reasons = append(reasons, err.Error())
	}
	text += ": " + strings.Join(reasons, "; ")
	if errors.Is(e, errors.ErrUnsupported) {
		return text
	}
	return text + ". Start it with `" + e.Place.command() + "`, or name its socket with --admin-socket"
}

func (e *NotServingError) Unwrap() []error { return e.Reasons }

// HeldError says that another serve has a socket.
type HeldError struct {
	Path string
	// PID is the one that it wrote down, or zero.
	PID int
}

func (e *HeldError) Error() string {
	who := "another berth serve"
	if e.PID != 0 {
		who = fmt.Sprintf("berth serve with pid %d", e.PID)
	}
	return fmt.Sprintf("admin socket %s: %s has it", e.Path, who)
}

// errNoSocket is why there is nothing to do at a place that is turned off.
var errNoSocket = errors.New("the admin socket is turned off")
