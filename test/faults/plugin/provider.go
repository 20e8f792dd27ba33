package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/fips140"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// provider has workspaces of any name. It does what the path of a Stat or MkdirAll
// call says, "/VERB/ARGUMENT", and answers a Stat in the target of the file.
type provider struct {
	berthv1.UnimplementedProviderServer
}

func (*provider) Describe(ctx context.Context, _ *berthv1.DescribeRequest) (*berthv1.DescribeResponse, error) {
	switch how() {
	case faults.DieDescribe:
		fmt.Fprintln(realStderr, "describe is the last thing I do")
		os.Exit(5)
	case faults.HangDescribe:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &berthv1.DescribeResponse{Name: how(), Version: "1.2.3", ConfigSchema: []byte(`{"type":"object"}`)}, nil
}

func (*provider) Configure(context.Context, *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	if how() == faults.Refuses {
		return nil, wire.ToStatus(fmt.Errorf("image: no such thing: %w", workspace.ErrInvalid))
	}
	return &berthv1.ConfigureResponse{Features: []string{"list"}}, nil
}

func (*provider) Stat(ctx context.Context, req *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	verb, arg, _ := strings.Cut(strings.TrimPrefix(string(req.GetPath()), "/"), "/")
	answer, err := do(ctx, verb, arg)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return &berthv1.StatResponse{Info: &berthv1.FileInfo{Name: []byte(verb), Target: answer}}, nil
}

// MkdirAll does the same as Stat, for those who want a call that is never made twice.
func (p *provider) MkdirAll(ctx context.Context, req *berthv1.MkdirAllRequest) (*berthv1.MkdirAllResponse, error) {
	_, err := p.Stat(ctx, &berthv1.StatRequest{Path: req.GetPath()})
	return &berthv1.MkdirAllResponse{}, err
}

func (*provider) Create(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	return stream.Send(opened(cmp.Or(req.GetName(), req.GetToken())))
}

func (*provider) Attach(req *berthv1.AttachRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	return stream.Send(opened(req.GetWorkspace().GetId()))
}

func opened(id string) *berthv1.OpenResponse {
	return &berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: &berthv1.Opened{Id: id, Incarnation: []byte("1"), WorkingDir: []byte("/")}}}
}

func do(ctx context.Context, verb, arg string) ([]byte, error) {
	switch verb {
	case "ping":
		return []byte("pong"), nil
	case "pid":
		return []byte(strconv.Itoa(os.Getpid())), nil
	case "env": // the whole environment
		return []byte(strings.Join(os.Environ(), "\x00")), nil
	case "dir":
		dir, err := os.Getwd()
		return []byte(dir), err
	case "stdin": // all that can be read there
		return io.ReadAll(os.Stdin)
	case "sleep": // for ARGUMENT
		d, err := time.ParseDuration(arg)
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return []byte("slept"), ctx.Err()
	case "exit": // with status ARGUMENT, after a last line
		status, err := strconv.Atoi(arg)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(realStderr, "these are my last words")
		os.Exit(status)
	case "panic":
		go panic("panic in a handler: " + arg) // past any recovery
		select {}
	case "freeze":
		freezeSelf()
		return []byte("thawed"), nil
	case "big": // an answer of ARGUMENT bytes
		size, err := strconv.Atoi(arg)
		return make([]byte, size), err
	case "garbage": // in the place of an answer, see garbling
		return nil, nil
	case "fips": // whether this process's cryptography is that of FIPS 140
		return []byte(strconv.FormatBool(fips140.Enabled())), nil
	case "streams": // that were opened to this plugin
		streams.mu.Lock()
		defer streams.mu.Unlock()
		return []byte(strings.Join(streams.methods, " ")), nil
	case "stderr-hex": // as stderr, in hexadecimal: a path cannot hold every byte
		line, err := hex.DecodeString(arg)
		if err != nil {
			return nil, err
		}
		_, err = realStderr.Write(append(line, '\n'))
		return nil, err
	case "stderr": // the argument as one line, any bytes
		_, err := realStderr.WriteString(arg + "\n")
		return nil, err
	case "flood-stdout", "flood-stderr": // COUNT/SIZE lines
		return nil, flood(verb, arg)
	case "hold-stderr": // a child that keeps it open: its pid
		child := exec.Command("sleep", "300")
		child.Stderr = realStderr
		if err := child.Start(); err != nil {
			return nil, err
		}
		return []byte(strconv.Itoa(child.Process.Pid)), nil
	case "write-stderr": // a child in a session of its own that writes there for ever: its pid
		child := detached("sh", "-c", "trap '' PIPE; while :; do echo still here >&2 || exit; done")
		child.Stderr = realStderr
		if err := child.Start(); err != nil {
			return nil, err
		}
		return []byte(strconv.Itoa(child.Process.Pid)), nil
	}
	if answer, ok, err := consume(verb, arg); ok {
		return answer, err
	}
	return nil, fmt.Errorf("verb %q: %w", verb, errors.ErrUnsupported)
}

// These are the process's own outputs: go-plugin replaces those of package os.
var realStdout, realStderr = os.Stdout, os.Stderr

func flood(verb, arg string) error {
	var count, size int
	if _, err := fmt.Sscanf(arg, "%d/%d", &count, &size); err != nil {
		return err
	}
	out := realStdout
	if verb == "flood-stderr" {
		out = realStderr
	}
	w := bufio.NewWriterSize(out, 64<<10)
	line := strings.Repeat("x", size) + "\n"
	for range count {
		if _, err := w.WriteString(line); err != nil {
			return err
		}
	}
	return w.Flush()
}
