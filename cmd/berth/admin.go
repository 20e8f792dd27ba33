package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
	"github.com/berth-dev/berth/host"
)

// adminSocketFlag is that of serve, and of the commands that speak to one.
type adminSocketFlag string

func (f *adminSocketFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(f), "admin-socket", "",
		"`PATH` of the socket at which berth serve is looked after, or none (default: where admin_socket says, else a path made from the configuration's)")
}

// adminPlace tells where the admin socket of a serve of the configuration is. It
// starts nothing, and needs no variable that the configuration of a provider does.
func (a *app) adminPlace(flag adminSocketFlag) (admin.Place, error) {
	file, err := a.findConfig()
	if err != nil {
		return admin.Place{}, err
	}
	if flag != "" {
		return admin.Locate(file, "", string(flag))
	}
	if file == "" {
		return admin.Locate("", host.Config{}.DataFolder(), "")
	}
	config, err := await(a.ended, 0, func() (host.Config, error) { return host.LoadSections(file) }) // which may be a FIFO
	if err != nil {
		return admin.Place{}, err
	}
	named, err := adminSocketKey(config)
	if err != nil {
		return admin.Place{}, err
	}
	return admin.Locate(file, config.DataFolder(), named)
}

// adminSocketKey is what the configuration says: empty if it does not.
func adminSocketKey(config host.Config) (string, error) {
	section := config.Section("admin_socket")
	if !section.Exists() {
		return "", nil
	}
	switch text, err := section.Text(); {
	case err != nil || text == admin.None:
		return text, err
	case text == "":
		return "", section.Fault("is empty: want a path, or none")
	default:
		return section.ResolvePath(text), nil
	}
}

// reach finds the serve that a command is about. The caller closes the client.
func (a *app) reach(ctx context.Context, flag adminSocketFlag) (*admin.Client, error) {
	place, err := a.adminPlace(flag)
	if err != nil {
		return nil, err
	}
	return admin.Connect(ctx, place)
}

// notServing says whether an error is that no serve is there to be asked.
func notServing(err error) bool {
	var missed *admin.NotServingError
	return errors.As(err, &missed)
}

// sayServe tells whom what follows is from.
func (a *app) sayServe(c *admin.Client) {
	a.say("as berth serve has it, pid %d, since %s: %s", c.Serve.PID, moment(c.Serve.Started, time.Now()), c.Path())
}

// moment is a time of day here, and how long ago that was.
func moment(t, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.Local().Format(time.DateTime), age(t, now))
}
