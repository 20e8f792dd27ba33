// Package guest is for providers whose workspaces have a guest in them: the
// binary berth-guest, which serves berth.v1 from inside, over one byte stream. All
// commands and files of a workspace go over that stream; the SDK's server hands
// the calls on and checks the answers.
//
//	type container struct {
//		*guest.Workspace // commands, files, features
//		id, incarnation string
//	}
//
//	func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
//		ws, err := guest.Open(ctx, guest.Options{
//			Dial: func(ctx context.Context) (net.Conn, error) {
//				return p.exec(ctx, id, "berth-guest", "connect", "--socket", socket)
//			},
//			Explain: func(ctx context.Context, err error) error { return p.stateOf(ctx, id, err) },
//			Version: version,
//		})
//		if err != nil {
//			return nil, err
//		}
//		return &container{ws, id, incarnation}, nil
//	}
//
// A guest is not trusted: what it says is bounded and checked, and whatever it
// sends instead ends the connection with an error.
package guest
