package docker

import "github.com/berth-dev/berth/plugins/docker/internal/runtimes"

const (
	// DefaultImage is what a workspace is made from unless it is told.
	DefaultImage = "python:3.12-slim"
	// DefaultWorkDir is where commands start.
	DefaultWorkDir = "/workspace"
	// DefaultPidsLimit keeps a fork bomb from the rest of the machine.
	DefaultPidsLimit = 512
)

// How the guest is placed, as configured.
const (
	guestAuto = "auto" // init, or whatever else works
	guestInit = "init"
	guestExec = "exec"
	guestOff  = "off"
)

// Config is the provider's configuration. The keys that change what an operator
// trusts (host folders, the runtime that isolates, the one container for all) are
// the provider's alone; the rest may be set for one workspace.
type Config struct {
	// Image is the image's reference.
	Image string `json:"image,omitempty" jsonschema:"description=The image that workspaces are made from. It is pulled when the engine does not have it. By default python:3.12-slim." berth:"per_workspace"`
	// Runtime is a built-in's name or an object; it is instead of Image.
	Runtime runtimes.Config `json:"runtime,omitempty" jsonschema:"description=What workspaces have in them: the name of a built-in runtime such as coding or python-web; or an object with an image or a base_image and packages. It takes the place of image and gives a work directory of its own." berth:"per_workspace"`
	// WorkDir is where commands start.
	WorkDir string `json:"work_dir,omitempty" jsonschema:"pattern=^/,example=/workspace,description=Where commands start: an absolute path. Made if it is not in the image and then owned by the container's user. By default /workspace." berth:"per_workspace"`
	// NetworkMode is Docker's.
	NetworkMode string `json:"network_mode,omitempty" jsonschema:"description=The network: bridge or none or host or the name of a network of the engine. By default the engine's own default." berth:"per_workspace"`
	// MemLimit is with swap, which is pinned to it.
	MemLimit Size `json:"mem_limit,omitempty" jsonschema:"description=The most memory that the container may take, such as 512m: no swap comes on top." berth:"per_workspace"`
	// CPUs is how many processors' worth of time.
	CPUs float64 `json:"cpus,omitempty" jsonschema:"minimum=0,description=How many processors the container may use: 1.5 for one and a half." berth:"per_workspace"`
	// CPUShares is a weight.
	CPUShares int64 `json:"cpu_shares,omitempty" jsonschema:"minimum=0,description=The container's weight when processors are short: 1024 is what others have." berth:"per_workspace"`
	// PidsLimit is nil for the default; 0 and -1 are no limit.
	PidsLimit *int64 `json:"pids_limit,omitempty" jsonschema:"minimum=-1,description=The most processes and threads that commands may have. By default 512; -1 is no limit." berth:"per_workspace"`
	// Tmpfs is paths with mount options.
	Tmpfs map[string]string `json:"tmpfs,omitempty" jsonschema:"description=Folders in memory: each a path with its mount options such as size=64m. Files there are lost when the container stops. exec is added unless noexec is said." berth:"per_workspace"`
	// OCIRuntime isolates.
	OCIRuntime string `json:"oci_runtime,omitempty" jsonschema:"description=The engine's runtime that runs the container such as runsc or kata. By default the engine's own."`
	// Env is every command's environment.
	Env map[string]string `json:"env,omitempty" jsonschema:"description=Environment variables of every command. They travel with each command and are not written into the container." berth:"per_workspace"`
	// Volumes is host paths, or names of volumes, with where they appear.
	Volumes map[string]string `json:"volumes,omitempty" jsonschema:"description=Folders of the engine's machine or volumes of the engine and where they are in the container: {/data: /data:ro}. A relative path starts at the configuration's folder."`
	// ContainerName is the one container of this provider.
	ContainerName string `json:"container_name,omitempty" jsonschema:"pattern=^[a-zA-Z0-9][a-zA-Z0-9_.-]+$,example=build-box,description=The name of the one container that this provider is about. Made on first use if there is none; it may be somebody else's."`
	// User is whom commands run as.
	User string `json:"user,omitempty" jsonschema:"pattern=^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?$,example=1000:1000,description=Who commands and files are: a name or a number and optionally a group as in 1000:1000. By default the image's." berth:"per_workspace"`
	// ReadOnly leaves the work directory and /tmp.
	ReadOnly bool `json:"read_only,omitempty" jsonschema:"description=Nothing can be written but in the work directory (a volume) and in /tmp (memory) and what volumes and tmpfs say." berth:"per_workspace"`
	// Guest says how the guest is placed.
	Guest string `json:"guest,omitempty" jsonschema:"enum=auto,enum=init,enum=exec,enum=off,description=How the guest is placed in new containers: init as their first process; exec started beside it; off not at all: each command is an exec of the engine. By default auto: as init or as far as that can be done."`
	// GuestDir is where the guest's binaries are.
	GuestDir string `json:"guest_dir,omitempty" jsonschema:"description=The folder with the guest's binaries berth-guest-linux-amd64 and -arm64. By default the one that the plugin is in." berth:"path"`
}
