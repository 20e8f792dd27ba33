package testimages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// debianPackages come beside the minimal system: what the built-in python images
// have and a test uses.
const debianPackages = "python3-minimal,procps"

func debian() recipe {
	return recipe{
		name:    "debian",
		sources: []string{"debian.go"},
		write:   writeDebian,
		changes: []string{"ENV " + path, `CMD ["sh"]`},
	}
}

func writeDebian(ctx context.Context, w io.Writer, _ []byte) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can make it (chroot): run `go run ./test/docker/images` as root once")
	}
	if err := needCommand(ctx, "debootstrap", "debootstrap"); err != nil {
		return err
	}
	mirror, suite, err := mirror(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-test-debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root")
	if err := command(ctx, "debootstrap", "--variant=minbase", "--include="+debianPackages, suite, root, mirror); err != nil {
		return err
	}
	if err := trim(root); err != nil {
		return err
	}
	if err := command(ctx, "chroot", root, "useradd", "--uid", strconv.Itoa(agentUID), "--create-home", "--shell", "/bin/sh", "agent"); err != nil {
		return err
	}
	// tar knows what a root file system holds (hard links, file capabilities)
	// better than archive/tar, and whoever has debootstrap has it.
	pack := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--xattrs", "--one-file-system", "--directory", root, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", ".")
	var problem bytes.Buffer
	pack.Stdout, pack.Stderr = w, &problem
	if err := pack.Run(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, tail(problem.Bytes()))
	}
	return nil
}

// trim removes what the packages were installed from, and what debootstrap
// copies of this machine.
func trim(root string) error {
	for _, pattern := range []string{"var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*", "var/log/*.log", "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, p := range paths {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"etc/resolv.conf", "etc/hostname"} {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// mirror returns where this machine gets Debian from, and the release of it.
func mirror(ctx context.Context) (url, suite string, err error) {
	suite, err = codename("/etc/os-release")
	if err != nil {
		return "", "", err
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask apt-get for this machine's sources: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == suite && f[2] == "main" {
			return f[0], suite, nil
		}
	}
	return "", "", fmt.Errorf("no source of %s/main among this machine's apt sources", suite)
}

func codename(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", fmt.Errorf("%s has no VERSION_CODENAME: this is no Debian", file)
}
