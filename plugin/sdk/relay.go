package sdk

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Some workspaces answer berth.v1 themselves: there is a guest in them. Calls on
// these are handed on to it, and what it answers is checked as a host would: a
// guest that answers nonsense breaks its own calls, and never makes this plugin
// look faulty.

// maxGuestMessage is the most bytes that a guest may send in one message. A chunk
// is an eighth of the megabyte that a window lets through; listings come in messages
// of a chunk's size, and one entry is far below that.
const maxGuestMessage = 2 << 20

var guestLimit = grpc.MaxCallRecvMsgSize(maxGuestMessage)

// relayable are the features whose calls the relay can carry: one that a newer
// guest announces beside them would not reach it.
var relayable = workspace.Features{
	workspace.FeatureCommands: true, workspace.FeatureShell: true, workspace.FeatureAttachRun: true,
	workspace.FeatureFiles: true, workspace.FeatureRename: true, workspace.FeatureSymlink: true,
	workspace.FeatureChmod: true, workspace.FeatureChtimes: true,
	workspace.FeatureExclusive: true, workspace.FeatureAppend: true,
}

// guestCall is one call to the guest of a workspace.
type guestCall struct {
	server *server
	id     string
	conn   *relay.Conn
}

// guest connects to the guest in e, if need be, for one call.
func (s *server) guest(ctx context.Context, e *entry) (g guestCall, err error) {
	g = guestCall{server: s, id: e.id}
	err = s.safely("connecting to a workspace's guest", func() error {
		g.conn, err = e.target.BerthRelay(ctx)
		return err
	})
	switch {
	case err != nil:
		return g, err
	case g.conn == nil || isNil(g.conn.Client) || g.conn.Key == nil:
		return g, fmt.Errorf("workspace %s: the provider gave no connection to its guest and no error", e.id)
	}
	return g, nil
}

func (g guestCall) release() {
	if g.conn.Release != nil {
		g.conn.Release()
	}
}

// callGuest makes a unary call.
func callGuest[Resp any](ctx context.Context, s *server, e *entry, do func(context.Context, berthv1.ProviderClient, *berthv1.WorkspaceKey) (Resp, error)) (Resp, error) {
	g, err := s.guest(ctx, e)
	if err != nil {
		var none Resp
		return none, err
	}
	defer g.release()
	answer, err := do(ctx, g.conn.Client, g.conn.Key)
	if err != nil {
		err = g.failure(ctx, err)
	}
	return answer, err
}

// nonsense is an answer that the guest may not give.
func (g guestCall) nonsense(format string, args ...any) error {
	return fmt.Errorf("the guest in workspace %s answered %s", g.id, fmt.Sprintf(format, args...))
}

// failure tells what an error of a call means: the guest's own answer, the end of
// the host's call, or a connection that broke.
func (g guestCall) failure(ctx context.Context, err error) error {
	if detail := wire.Detail(err); detail != nil {
		return wire.FromDetail(plainDetail(detail))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	st, _ := status.FromError(err)
	text := shorten(st.Message())
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.DataLoss:
		return g.broken(ctx, err)
	case codes.ResourceExhausted:
		switch {
		case strings.Contains(text, "trying to send message larger than max"):
			return fmt.Errorf("the request is over the cap of %d MiB a message: %w: %w", wire.MaxMessage>>20, workspace.ErrInvalid, syscall.E2BIG)
		case strings.Contains(text, "message larger than max"), strings.Contains(text, "message after decompression larger than max"):
			return g.nonsense("with a message over %d MiB", maxGuestMessage>>20)
		}
		return fmt.Errorf("the guest in workspace %s answered: %s: %w", g.id, text, workspace.ErrTransient)
	}
	if wire.Answered(err) {
		return fmt.Errorf("the guest in workspace %s answered: %w", g.id, wire.FromStatus(status.Error(st.Code(), text)))
	}
	return g.nonsense("with a failure of its own: %s: %s", st.Code(), text)
}

// broken is what the provider says of a connection that broke.
func (g guestCall) broken(ctx context.Context, err error) error {
	var meaning error
	if g.conn.Explain != nil {
		if panicked := g.server.safely("explaining a broken connection", func() error {
			meaning = g.conn.Explain(ctx, err)
			return nil
		}); panicked != nil {
			meaning = panicked
		}
	}
	if meaning == nil {
		st, _ := status.FromError(err)
		meaning = fmt.Errorf("the connection to the guest in workspace %s broke: %s: %w", g.id, shorten(st.Message()), workspace.ErrTransient)
	}
	return meaning
}

// plainDetail is a guest's error with what a guest can know: a plugin process
// is none of that, and neither is a command's end outside of an outcome.
func plainDetail(d *berthv1.ErrorDetail) *berthv1.ErrorDetail {
	return &berthv1.ErrorDetail{Message: d.GetMessage(), Kinds: d.GetKinds(), Errno: d.GetErrno(), Path: d.GetPath()}
}

// outcomeDetail is the same for the error in an outcome.
func outcomeDetail(d *berthv1.ErrorDetail) *berthv1.ErrorDetail {
	plain := plainDetail(d)
	if t := d.GetTimeout(); t != nil {
		plain.Timeout = &berthv1.TimeoutDetail{TimeoutNs: max(t.GetTimeoutNs(), 0), Ceiling: t.GetCeiling(), Survivors: t.GetSurvivors()}
	}
	if l := d.GetOutputLimit(); l != nil {
		plain.OutputLimit = &berthv1.OutputLimitDetail{Limit: max(l.GetLimit(), 0), Survivors: l.GetSurvivors()}
	}
	return plain
}

// detail is a guest's error detail as this plugin would have written it: bounded,
// of known members, without secrets.
func (g guestCall) detail(d *berthv1.ErrorDetail) *berthv1.ErrorDetail {
	return g.server.redactor.detail(wire.ToDetail(wire.FromDetail(d)))
}

// maxQuoted is how much of a guest's text is quoted.
const maxQuoted = 512

func shorten(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return text
}

// checkInfo refuses what cannot be said of a file. An entry of a listing has a
// name that whoever copies a tree can join to its path.
func (g guestCall) checkInfo(info *berthv1.FileInfo, entry bool) (workspace.FileInfo, error) {
	name := string(info.GetName())
	switch {
	case info == nil:
		return workspace.FileInfo{}, g.nonsense("without saying anything of the file")
	case entry && badName(name), name != "/" && strings.ContainsAny(name, "/\x00"):
		return workspace.FileInfo{}, g.nonsense("with %q, which is no file name", shorten(name))
	case info.GetSize() < 0:
		return workspace.FileInfo{}, g.nonsense("that a file has %d bytes", info.GetSize())
	case strings.IndexByte(string(info.GetTarget()), 0) >= 0:
		return workspace.FileInfo{}, g.nonsense("with a link's target that holds a NUL")
	}
	return wire.ToFileInfo(info), nil
}

func badName(name string) bool {
	return name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00")
}
