package testimages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// shownOutput is how much of a failed command's output an error repeats: its end
// says why.
const shownOutput = 2 << 10

// needCommand installs a Debian package unless the machine has its command.
func needCommand(ctx context.Context, name, pkg string) error {
	return needPackage(ctx, pkg, func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
}

// needPackage installs a Debian package unless there says that it is.
func needPackage(ctx context.Context, pkg string, there func() bool) error {
	if there() {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("it needs Debian's package %s, and only root can install it", pkg)
	}
	if err := command(ctx, "apt-get", "update", "-q"); err != nil {
		return err
	}
	if err := command(ctx, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qy", "--no-install-recommends", pkg); err != nil {
		return err
	}
	if !there() {
		return fmt.Errorf("the package %s is installed and lacks what it is needed for", pkg)
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, tail(out))
	}
	return nil
}

func tail(out []byte) []byte { return out[max(0, len(out)-shownOutput):] }
