package testimages

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// The user that every image with a passwd has beside root.
const (
	agentUID = 1000
	passwd   = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
	group    = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"
)

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// busyboxFile is where Debian's busybox-static puts it.
const busyboxFile = "/bin/busybox"

func busybox() recipe {
	return recipe{
		name:    "busybox",
		sources: []string{"busybox.go"},
		write:   writeBusybox,
		changes: []string{"ENV " + path, `CMD ["sh"]`},
	}
}

func writeBusybox(ctx context.Context, w io.Writer, _ []byte) error {
	if err := needPackage(ctx, "busybox-static", func() bool { return isStaticBusybox(ctx) }); err != nil {
		return err
	}
	binary, err := os.ReadFile(busyboxFile)
	if err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, busyboxFile, "--list").Output()
	if err != nil {
		return fmt.Errorf("list busybox's applets: %w", err)
	}
	t := archive{tar.NewWriter(w)}
	for _, dir := range []string{"bin", "dev", "etc", "home", "opt", "proc", "sys", "usr", "usr/bin", "usr/local", "usr/local/bin", "var"} {
		t.dir(dir, 0o755, 0)
	}
	t.dir("root", 0o700, 0)
	t.dir("home/agent", 0o755, agentUID)
	t.dir("tmp", 0o1777, 0)
	t.dir("var/tmp", 0o1777, 0)
	t.file("etc/passwd", 0o644, []byte(passwd))
	t.file("etc/group", 0o644, []byte(group))
	t.file("bin/busybox", 0o755, binary)
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			t.link("bin/"+applet, "busybox")
		}
	}
	return t.Close()
}

// isStaticBusybox tells Debian's busybox-static from its busybox, which needs a
// C library: `--list` of either works here, and only one works in the image.
func isStaticBusybox(context.Context) bool {
	binary, err := os.ReadFile(busyboxFile)
	return err == nil && !bytes.Contains(binary, []byte("/ld-linux"))
}

// archive writes what a root file system is made of. Errors of the writes
// before it come out of Close.
type archive struct{ *tar.Writer }

func (a archive) dir(name string, mode int64, owner int) {
	_ = a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner})
}

func (a archive) file(name string, mode int64, content []byte) {
	if a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}) == nil {
		_, _ = a.Write(content)
	}
}

func (a archive) link(name, target string) {
	_ = a.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}
