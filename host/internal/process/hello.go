package process

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin"
)

// maxHello is the longest handshake line that is read. go-plugin's own is under
// 200 bytes, and under 2 KiB with a certificate.
const maxHello = 8 << 10

// maxQuoted is how much of a wrong first line an error repeats.
const maxQuoted = 200

// errNoHello is a stdout that ended before a handshake line.
var errNoHello = errors.New("no handshake line")

// readHello reads the first line of a plugin's stdout, which must be go-plugin's
// handshake: core version, protocol version, network, address, "grpc". It returns those five alone. Every
// error but [errNoHello] says what is wrong with the line.
func readHello(r *bufio.Reader, path string, speaks []int) (string, error) {
	line, err := readLine(r)
	if err != nil && line == "" {
		return "", fmt.Errorf("%w: %w", errNoHello, err)
	}
	parts := strings.Split(line, "|")
	if len(parts) < 4 || !allDigits(parts[0]) || !allDigits(parts[1]) {
		return "", fmt.Errorf("%s wrote %s to stdout before the handshake: a plugin must print nothing there", path, quote(line))
	}
	if core, err := strconv.Atoi(parts[0]); err != nil || core != plugin.CoreProtocolVersion {
		return "", fmt.Errorf("%s speaks version %s of go-plugin's own protocol, this host version %d: rebuild the plugin with a current SDK", path, parts[0], plugin.CoreProtocolVersion)
	}
	if version, err := strconv.Atoi(parts[1]); err != nil || !slices.Contains(speaks, version) {
		return "", fmt.Errorf("%s speaks protocol version %s, this host %s: use a plugin and a host of the same age", path, parts[1], versions(speaks))
	}
	if len(parts) < 5 || plugin.Protocol(parts[4]) != plugin.ProtocolGRPC {
		return "", fmt.Errorf("%s does not serve gRPC (its handshake is %s): rebuild the plugin with a current SDK", path, quote(line))
	}
	if len(parts) > 5 && parts[5] != "" {
		return "", fmt.Errorf("%s serves TLS, which was not asked for: a plugin must serve plain gRPC on its socket", path)
	}
	// No more than go-plugin needs: a certificate that it did not ask for makes
	// it crash the host.
	return strings.Join(parts[:5], "|"), nil
}

// readLine reads up to the newline, or maxHello bytes, or the end.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for len(line) < maxHello {
		b, err := r.ReadByte()
		if err != nil {
			return string(line), err
		}
		if b == '\n' {
			break
		}
		line = append(line, b)
	}
	return strings.TrimSpace(string(line)), nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func versions(list []int) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, ", ")
}

func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "…"
	}
	return strconv.Quote(s)
}
