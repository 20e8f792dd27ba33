package images

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

// errRateLimited is a registry that asks to come again later.
var errRateLimited = fmt.Errorf("the registry is too busy: %w", workspace.ErrTransient)

// clientPrefix is what the client puts before the engine's own words.
const clientPrefix = "Error response from daemon: "

// secretLength is the least length of what is taken out of texts as a secret: a
// shorter one would be everywhere.
const secretLength = 4

// faults are what an engine says when a pull fails. Its statuses tell little: most
// are 404 or 500, or 200 with the error in what follows. The first that matches
// counts.
var faults = []struct {
	pattern *regexp.Regexp
	kind    error
	advice  string
}{
	{regexp.MustCompile(`(?i)no space left on device`), syscall.ENOSPC, "make room on the engine's disk (docker system df shows what takes it)"},
	{regexp.MustCompile(`(?i)toomanyrequests|too many requests|\b429\b|rate limit`), errRateLimited, "try again later, or log in for a higher limit"},
	{regexp.MustCompile(`(?i)no matching manifest|does not match the specified platform|operating system .* cannot be used|image os .* cannot be used|no match for platform`), workspace.ErrInvalid, "there is no such image for the engine's platform: choose one that has it, or build it"},
	{regexp.MustCompile(`(?i)access denied|access to the resource is denied|unauthorized|authentication required|no basic auth|incorrect username or password|\b401\b|\b403\b|forbidden|\bdenied\b`), workspace.ErrInvalid, ""},
	{regexp.MustCompile(`(?i)manifest unknown|name unknown|name invalid|not found|repository does not exist|\b404\b`), workspace.ErrInvalid, "the registry has no such image: check its name and tag"},
	{regexp.MustCompile(`(?i)no such host|server misbehaving|name resolution`), workspace.ErrTransient, "the registry's host name cannot be resolved: check the image's name, and the DNS of the engine's machine"},
	{regexp.MustCompile(`(?i)http response to https client`), workspace.ErrInvalid, "the registry has no TLS: add it to the engine's insecure-registries"},
	{regexp.MustCompile(`(?i)x509|certificate`), workspace.ErrInvalid, "the engine does not trust the registry's certificate: put its authority into /etc/docker/certs.d/HOST/ca.crt there"},
	{regexp.MustCompile(`(?i)unsupported media type|mediatype|schema version|schema 1|invalid rootfs|unknown layer format`), workspace.ErrInvalid, "the image is of a format that this engine does not know"},
	{regexp.MustCompile(`(?i)verification failed|failed to verify|digest mismatch|unexpected commit digest`), workspace.ErrTransient, "what came is not what the registry promised: something on the way, or in the registry, has damaged it"},
	{regexp.MustCompile(`(?i)unknown blob|blob unknown`), workspace.ErrInvalid, "the registry has only a part of the image: push it again"},
}

// explain says why a pull has failed and what to do about it. It leaves what is
// about the way to the engine to others.
func explain(ctx context.Context, named reference.Named, creds found, err error) error {
	var inStream *pullError
	if ctx.Err() != nil || (!errors.As(err, &inStream) && !engine.IsAnswer(err)) {
		return err
	}
	text := redact(strings.TrimPrefix(err.Error(), clientPrefix), creds.secrets)
	for _, fault := range faults {
		if !fault.pattern.MatchString(text) {
			continue
		}
		advice := fault.advice
		if advice == "" {
			advice = logIn(reference.Domain(named), creds)
		}
		return fmt.Errorf("%s (%s): %w", text, advice, fault.kind)
	}
	if errdefs.IsInvalidArgument(err) {
		return fmt.Errorf("%s: %w", text, workspace.ErrInvalid)
	}
	return fmt.Errorf("%s: %w", text, workspace.ErrTransient)
}

// logIn says what to do about a registry that refuses.
func logIn(domain string, creds found) string {
	login := "docker login"
	if domain != dockerHub {
		login += " " + domain
	}
	switch {
	case creds.failed != nil:
		return fmt.Sprintf("no credentials were sent, for %s failed: %v; mend it, or run %q", creds.from, creds.failed, login)
	case creds.header == "":
		return fmt.Sprintf("there are no credentials for %s: run %q if the image is private, or check its name", domain, login)
	}
	return fmt.Sprintf("the credentials for %s from %s do not do: run %q again, or check the image's name", domain, creds.from, login)
}

// redact takes secrets out of a text.
func redact(text string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= secretLength {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	return text
}
