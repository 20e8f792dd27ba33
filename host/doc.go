// Package host is for programs that embed workspaces. A [Host] loads each
// configured provider as a plugin process of its own and opens workspaces on
// it:
//
//	h, err := host.New(host.Config{Providers: map[string]host.Provider{"local": {}}})
//	defer h.Close()
//	ws, err := h.Workspace("local")
//	res, err := ws.Run(ctx, workspace.Command{Args: []string{"uname", "-a"}})
//
// New starts nothing, and making a handle does no I/O: the plugin starts and the
// workspace is made on the first operation, once, however many run at the same
// time. A handle outlives its plugin: one that dies is started again by the next
// call, and reaches the same workspace. Nothing is ever destroyed but by
// [Host.Destroy].
//
// A plugin is never trusted: it may crash, hang, flood or answer nonsense, and
// all that comes of it is a [*workspace.PluginError] for the calls it was
// answering.
package host
