package runtimes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Labels of the images. A container inherits its image's, so none of them says
// who made a container.
const (
	labelManaged = "dev.berth.managed"
	labelName    = "dev.berth.runtime"
	labelDigest  = "dev.berth.runtime.digest"
)

const (
	// repository is the name of all images of runtimes; tags tell them apart.
	repository = "berth-runtime"
	// tagDigest is how much of the recipe's digest a tag holds.
	tagDigest = 16
	// venv is the Python environment that an unprivileged user owns.
	venv = "/opt/venv"
)

// instruction is a line of a Dockerfile, and the same in words for progress and
// errors.
type instruction struct{ text, says string }

// digest identifies the recipe: the same digest, the same image. Env is no part
// of it, since it is not in the image; the base image's own user is not either,
// since it is known only where that image is.
func (r Runtime) digest() string {
	sum := sha256.Sum256([]byte(dockerfile(r.instructions(""))))
	return hex.EncodeToString(sum[:])
}

func (r Runtime) reference() string {
	return repository + ":" + r.Name + "-" + r.digest()[:tagDigest]
}

func dockerfile(instructions []instruction) string {
	var b strings.Builder
	for _, i := range instructions {
		b.WriteString(i.text + "\n")
	}
	return b.String()
}

// instructions say how the image is built. Commands are in the JSON form, in
// which whatever they hold, newlines too, is data to the builder, and which does
// not ask for the base image's own shell. baseUser is what the base image's
// commands run as, to be so again at the end; empty is root.
func (r Runtime) instructions(baseUser string) []instruction {
	var list []instruction
	add := func(text string) { list = append(list, instruction{text, text}) }
	run := func(command string) { list = append(list, instruction{runInstruction(command), command}) }
	user := baseUser
	if r.RunAsUID != 0 {
		user = strconv.Itoa(r.RunAsUID)
	}

	add("FROM " + r.BaseImage)
	// First, so that what a failed build leaves carries them.
	add(fmt.Sprintf("LABEL %s=%q %s=%q", labelManaged, "true", labelName, r.Name))
	add("USER 0")
	for _, command := range r.SetupCommands {
		run(command)
	}
	if len(r.Packages) > 0 {
		switch r.PackageManager {
		case Apt:
			run(aptInstall(r.Packages...))
		case Cargo:
			run(cargoInstall(r.Packages...))
		}
	}
	if r.RunAsUID != 0 {
		run(addUser(r.RunAsUID))
	}
	add("WORKDIR " + r.WorkDir)
	if user != "" {
		run("chown " + user + " " + r.WorkDir)
	}
	switch {
	case r.PackageManager == Pip && r.RunAsUID != 0:
		run(makeVenv(r.RunAsUID, len(r.Packages) > 0))
		add(envPath(venv + "/bin"))
	case r.PackageManager == Npm && len(r.Packages) > 0:
		add(envPath(strings.TrimSuffix(r.WorkDir, "/") + "/node_modules/.bin"))
	}
	// What pip and npm install belongs to whoever goes on with it.
	if r.RunAsUID != 0 {
		add("USER " + user)
	}
	if len(r.Packages) > 0 {
		switch r.PackageManager {
		case Pip:
			run(pipInstall(r.Packages...))
		case Npm:
			run(npmInstall(r.Packages...))
		}
	}
	if r.RunAsUID == 0 && user != "" {
		add("USER " + user)
	}
	return list
}

// runInstruction is a command in the JSON form.
func runInstruction(command string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)                           // && stays readable
	_ = encoder.Encode([]string{"/bin/sh", "-c", command}) // strings always can be
	return "RUN " + strings.TrimSuffix(b.String(), "\n")
}

// envPath puts a folder before the PATH that the base image has, if any.
func envPath(dir string) string {
	return "ENV PATH=" + dir + ":${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
}

func aptInstall(packages ...string) string {
	return "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends " + words(packages) + " && rm -rf /var/lib/apt/lists/*"
}

// pipInstall also installs where Python is the distribution's, which since
// PEP 668 has to be told; a pip that is older does not know the variable.
func pipInstall(packages ...string) string {
	return "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --disable-pip-version-check " + words(packages)
}

func npmInstall(packages ...string) string {
	return "npm install --no-audit --no-fund --no-update-notifier " + words(packages) + " && npm cache clean --force"
}

func cargoInstall(packages ...string) string {
	return "cargo install --root /usr/local " + words(packages) + ` && rm -rf "${CARGO_HOME:-$HOME/.cargo}/registry"`
}

// addUser makes an account of a uid, unless the image has one, and its home. By
// hand, since useradd is not in every image.
func addUser(uid int) string {
	return fmt.Sprintf(strings.Join([]string{
		`name=agent; if grep -q "^agent:" /etc/passwd; then name=agent-%[1]d; fi`,
		`if ! grep -q "^[^:]*:[^:]*:%[1]d:" /etc/passwd; then`,
		`  grep -q "^[^:]*:[^:]*:%[1]d:" /etc/group || echo "$name:x:%[1]d:" >>/etc/group`,
		`  echo "$name:x:%[1]d:%[1]d::/home/$name:/bin/sh" >>/etc/passwd`,
		`fi`,
		`home=$(awk -F: '$3 == %[1]d {print $6; exit}' /etc/passwd)`,
		`mkdir -p "$home" && chown %[1]d "$home"`,
	}, "\n"), uid)
}

// makeVenv makes a Python environment that the user owns, since it cannot write
// into the interpreter's. Where nothing is to be installed, an image without
// Python is fine too.
func makeVenv(uid int, needed bool) string {
	command := fmt.Sprintf("python3 -m venv %[1]s && chown -R %[2]d %[1]s", venv, uid)
	if needed {
		return command
	}
	return "if python3 -c 'import venv, ensurepip' 2>/dev/null; then " + command + "; fi"
}

// plainWord needs no quotes in a shell.
var plainWord = regexp.MustCompile(`\A[A-Za-z0-9@][A-Za-z0-9._@/+=,-]*\z`)

// words are arguments in a shell's syntax. Validated names hold no quotes.
func words(args []string) string {
	var quoted []string
	for _, arg := range args {
		if !plainWord.MatchString(arg) {
			arg = "'" + arg + "'"
		}
		quoted = append(quoted, arg)
	}
	return strings.Join(quoted, " ")
}
