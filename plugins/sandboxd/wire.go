package sandboxd

// What the service speaks, as far as it is used here.

type createRequest struct {
	SessionID string `json:"session_id"`
	Runtime   string `json:"runtime,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
	Reuse     bool   `json:"reuse,omitempty"`
	Attach    bool   `json:"attach,omitempty"`
}

type createAnswer struct {
	Session sessionInfo `json:"session"`
	Token   string      `json:"token"`
}

type sessionInfo struct {
	SessionID    string  `json:"session_id"`
	Runtime      string  `json:"runtime"`
	Tenant       string  `json:"tenant"`
	State        string  `json:"state"`
	CreatedAt    float64 `json:"created_at"`
	LastActivity float64 `json:"last_activity"`
}

type listAnswer struct {
	Sessions []sessionInfo `json:"sessions"`
}

// policy is what the service holds its sessions to.
type policy struct {
	ExecuteTimeout float64 `json:"execute_timeout"`
	MaxReadBytes   int64   `json:"max_read_bytes"`
	WorkDir        string  `json:"work_dir"`
	NativeFiles    bool    `json:"native_files"`
	NativeWrites   bool    `json:"native_writes"`
	NativeRealpath bool    `json:"native_realpath"`
}

type runRequest struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env,omitempty"`
	RunID string            `json:"run_id"`
}

type runAnswer struct {
	Stdout        *string `json:"stdout"`
	Stderr        *string `json:"stderr"`
	ExitCode      *int    `json:"exit_code"`
	TimedOut      bool    `json:"timed_out"`
	OutputLimited bool    `json:"output_limited"`
}

type pathRequest struct {
	Path string `json:"path"`
}
