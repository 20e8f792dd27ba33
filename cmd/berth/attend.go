package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
	"github.com/berth-dev/berth/host"
)

// attend has a serve looked after while it runs: at its admin socket, and by
// hangups, which reload; and its service manager told when it is to end. The caller
// ends it with stop.
func (a *app) attend(ctx context.Context, h *host.Host, address string, flag adminSocketFlag, logger hclog.Logger) (stop func() error, err error) {
	place, err := a.adminPlace(flag)
	if err != nil {
		return nil, err
	}
	socket, err := admin.Listen(ctx, place)
	switch {
	case err == nil:
	case len(place.Paths) == 0: // turned off
	case place.Named || ctx.Err() != nil:
		return nil, err
	case errors.Is(err, errors.ErrUnsupported): // for nobody here
	default:
		// Nobody asked for it by name, and what clients want goes on without.
		a.say("warning: berth reload, why and providers cannot reach this serve: %v; --admin-socket gives it another, or none", err)
	}
	// Until the serve has drained, and so for longer than ctx.
	serving := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	hangups := make(chan os.Signal, 1) // several at once are one reload
	a.reloads.Store(true)
	signal.Notify(hangups, syscall.SIGHUP)
	server := admin.NewServer(h, admin.About{Version: version, Config: place.Config, Address: address}, logger)
	work.Go(func() { a.reloadAtHangups(ctx, server, hangups) })
	work.Go(func() {
		select {
		case <-serving.Done():
		case <-ctx.Done(): // which may be of the same moment
		}
		if serving.Err() != nil {
			a.notifyManager(context.WithoutCancel(ctx), managerStopping)
		}
	})
	var served error
	if socket != nil {
		work.Go(func() {
			if served = server.Serve(ctx, socket); served != nil {
				logger.Error("this serve cannot be looked after any more", "error", served)
			}
		})
	}
	return func() error {
		signal.Stop(hangups)
		cancel()
		work.Wait()
		if socket != nil {
			return errors.Join(served, socket.Close())
		}
		return nil
	}, nil
}

// reloadAtHangups swaps all plugins at each hangup. The configuration is not read
// again.
func (a *app) reloadAtHangups(ctx context.Context, server *admin.Server, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		list, err := server.Reload(ctx, nil)
		if err != nil { // of a name, and there is none
			a.say("reload: %v", err)
		}
		a.sayReloaded(list)
	}
}

// notifyManager tells the service manager that started this program, if it asked to
// be told, as systemd's Type=notify does. What cannot be told is only said: clients
// are served in any case.
func (a *app) notifyManager(ctx context.Context, state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if err := tellManager(ctx, address, state); err != nil {
		a.say("warning: telling the service manager %s: %v", state, err)
	}
}

// What a service manager is told.
const (
	managerReady    = "READY=1"
	managerStopping = "STOPPING=1"
)

func tellManager(ctx context.Context, address, state string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", address) // one that begins with @ is abstract
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("writing to %s: %w", address, err)
	}
	return nil
}
