package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRequest asks a gateway something that a script has started, whose standard
// output is in a file: its address is waited for. The answer's status and body are
// the output.
func cmdRequest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || len(args) > 5 {
		ts.Fatalf("usage: request FILE TOKEN METHOD PATH [BODY]")
	}
	var address string
	waitFor(ts, func() bool {
		data, _ := os.ReadFile(ts.MkAbs(args[0]))
		line, _, whole := strings.Cut(string(data), "\n")
		address = strings.TrimPrefix(line, "berth serves at ")
		return whole
	}, "the gateway's address")
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	url := address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		url = "http://gateway"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	body := strings.Join(args[4:], "")
	req, err := http.NewRequest(args[2], url+args[3], strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("X-Sandbox-Token", args[1])
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: transport, Timeout: scriptTimeout}
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", resp.StatusCode, strings.TrimSpace(string(data)))
}
