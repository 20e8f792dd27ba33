package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/transfer"
	"github.com/berth-dev/berth/shared/workspace"
)

func newCpCommand(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "cp FROM TO [flags]",
		Short: "Copy files and folders in and out",
		Long: `cp copies a file or a folder with all that is in it. FROM and TO are each
REF:PATH, a local path, or - for standard input or output; one of them at least is
in a workspace. A local name with a colon is written ./NAME.

Into a folder that is there it copies under the source's name; the contents alone
when FROM ends in /. ; else it makes TO, and parents that are missing. Permissions
are kept, links stay links. Links that are met on the way are never followed, and
one that stands where a file is to be is replaced. Owners, times, setuid bits and
what is neither file, folder nor link are not copied; the last is told.`,
		Example: `  berth cp ./src local/berth-3f62a91c0d5e4b78:src
  berth cp local/build:out/. ./out
  pg_dump mydb | berth cp - local/build:dump.sql
  berth cp local/build:log.txt - | tail`,
		Args:              exactly("FROM", "TO"),
		ValidArgsFunction: a.completeCp,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to, err := parseCp(args)
			if err != nil {
				return usage(cmd, err)
			}
			return a.cp(cmd.Context(), from, to, quiet)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress bar on a terminal")
	acceptRecursive(cmd)
	return cmd
}

func parseCp(args []string) (from, to transfer.Place, err error) {
	if from, err = transfer.ParsePlace(args[0]); err != nil {
		return from, to, err
	}
	if to, err = transfer.ParsePlace(args[1]); err != nil {
		return from, to, err
	}
	if !from.Remote() && !to.Remote() {
		return from, to, fmt.Errorf("neither %q nor %q is in a workspace: one is REF:PATH, as in local/berth-3f62a91c0d5e4b78:notes.txt", args[0], args[1])
	}
	return from, to, nil
}

func (a *app) cp(ctx context.Context, from, to transfer.Place, quiet bool) error {
	bar := a.newProgress(quiet)
	defer bar.end()
	switch {
	case from.Stream:
		return a.cpIn(ctx, to, bar)
	case to.Stream:
		return a.cpOut(ctx, from, a.stdout, bar)
	}
	if !to.Remote() {
		// A pipe or device is written to, and not replaced.
		if info, err := os.Stat(to.Path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			w, err := a.openPipe(to.Path)
			if err != nil {
				return err
			}
			err = a.cpOut(ctx, from, &stream{file: w, ended: a.ended}, bar)
			return errors.Join(err, w.Close())
		}
	}
	source, err := a.endpoint(from)
	if err != nil {
		return err
	}
	target, err := a.endpoint(to)
	if err != nil {
		return err
	}
	return transfer.Copy(ctx, source, target, transfer.Options{Begin: bar.begin, Progress: bar.add})
}

func (a *app) endpoint(p transfer.Place) (transfer.Endpoint, error) {
	if !p.Remote() {
		return transfer.Endpoint{Side: transfer.Local(), Path: p.Path}, nil
	}
	ws, err := a.attach(p.Ref)
	if err != nil {
		return transfer.Endpoint{}, err
	}
	return transfer.Endpoint{Side: transfer.Remote(ws, p.Ref.String(), func(note string) { a.say("%s", note) }), Path: p.Path}, nil
}

// cpIn copies standard input into a file.
func (a *app) cpIn(ctx context.Context, to transfer.Place, bar *progress) error {
	ws, err := a.attach(to.Ref)
	if err != nil {
		return err
	}
	bar.begin(unknownSize)
	err = transfer.Write(ctx, ws, to.Path, workspace.WriteOptions{}, io.TeeReader(&input{file: a.stdin, ended: a.ended}, bar))
	return in(to.Ref, err)
}

// cpOut copies a file to an output.
func (a *app) cpOut(ctx context.Context, from transfer.Place, w io.Writer, bar *progress) error {
	ws, err := a.attach(from.Ref)
	if err != nil {
		return err
	}
	info, err := ws.Stat(ctx, from.Path)
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: from.Path, Err: errors.New("is a folder: only a file can be copied to an output")}
	}
	if err != nil {
		return in(from.Ref, err)
	}
	bar.begin(info.Size)
	return in(from.Ref, cat(ctx, ws, from.Path, io.MultiWriter(w, bar)))
}
