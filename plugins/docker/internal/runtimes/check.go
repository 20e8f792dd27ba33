package runtimes

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/distribution/reference"
)

const (
	// maxUID is the last one before what systems keep for themselves (65534 is
	// nobody, 65535 and 4294967295 stand for none).
	maxUID = 65533
	// maxLine is a little less than the longest line that the engine's builder
	// reads, 64 KiB.
	maxLine = 60 << 10
	// maxPackages and maxPackage keep the line that installs them below the same.
	maxPackages = 200
	maxPackage  = 200
)

var (
	// namePattern makes a name a part of an image's tag.
	namePattern = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\z`)
	// packagePattern takes what the package managers take: extras, versions and
	// scopes. A leading dash would be an option.
	packagePattern = regexp.MustCompile(`\A[A-Za-z0-9@][A-Za-z0-9._@/+=<>~!^*,\[\]-]*\z`)
	workDirPattern = regexp.MustCompile(`\A(/[A-Za-z0-9._-]+)+\z`)
	// userPattern is what an image may say in USER.
	userPattern = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?\z`)
)

// check validates whatever reaches a Dockerfile, a command or a container.
func (r Runtime) check() error {
	if r.Name == "" {
		return invalid("runtime."+keyName, "is missing")
	}
	if !namePattern.MatchString(r.Name) {
		return invalid("runtime."+keyName, "%q: want letters, digits, dots, dashes and underscores, 63 at most, a letter or digit first", r.Name)
	}
	if err := r.checkImages(); err != nil {
		return err
	}
	if err := r.checkRecipe(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return invalid("runtime."+keyEnvVars, "%q is no name of a variable: it is empty or holds = or a NUL", name)
		}
		if strings.ContainsRune(r.Env[name], 0) {
			return invalid("runtime."+keyEnvVars+"."+name, "the value holds a NUL")
		}
	}
	return checkWorkDir(r.WorkDir)
}

func (r Runtime) checkImages() error {
	switch {
	case r.Image != "" && r.BaseImage != "":
		return invalid("runtime", "give image, which is ready-made, or base_image, on which is built, and not both")
	case r.Image == "" && r.BaseImage == "":
		return invalid("runtime", "give image, which is ready-made, or base_image, on which is built")
	case r.BaseImage == "scratch":
		return invalid("runtime."+keyBaseImage, "scratch is empty: nothing can be run or installed in it")
	}
	for key, value := range map[string]string{keyImage: r.Image, keyBaseImage: r.BaseImage} {
		if value == "" {
			continue
		}
		if _, err := reference.ParseNormalizedNamed(value); err != nil {
			return invalid("runtime."+key, "%q is no reference of an image, such as python:3.12-slim: %v", value, err)
		}
	}
	if r.Image == "" {
		return nil
	}
	for key, given := range map[string]bool{
		keyPackages: len(r.Packages) > 0, keyPackageManager: r.PackageManager != "",
		keySetupCommands: len(r.SetupCommands) > 0, keyRunAsUID: r.RunAsUID != 0,
	} {
		if given {
			return invalid("runtime."+key, "nothing is built on a ready-made image: write base_image in place of image")
		}
	}
	return nil
}

func (r Runtime) checkRecipe() error {
	managers := []string{Pip, Npm, Apt, Cargo}
	if r.PackageManager != "" && !slices.Contains(managers, r.PackageManager) {
		return invalid("runtime."+keyPackageManager, "%q: want one of %s", r.PackageManager, strings.Join(managers, ", "))
	}
	if len(r.Packages) > maxPackages {
		return invalid("runtime."+keyPackages, "%d are too many: want %d at most", len(r.Packages), maxPackages)
	}
	for i, name := range r.Packages {
		if len(name) > maxPackage || !packagePattern.MatchString(name) {
			return invalid(fmt.Sprintf("runtime.%s.%d", keyPackages, i), "%q is no name of a package, such as numpy, uvicorn[standard]==0.30 or @types/react", name)
		}
	}
	for i, command := range r.SetupCommands {
		key := fmt.Sprintf("runtime.%s.%d", keySetupCommands, i)
		switch {
		case strings.TrimSpace(command) == "":
			return invalid(key, "is empty")
		case len(runInstruction(command)) > maxLine:
			return invalid(key, "%d bytes are too many: want about %d at most", len(command), maxLine)
		case !utf8.ValidString(command), strings.ContainsRune(command, 0):
			return invalid(key, "holds a NUL, or bytes that are not UTF-8")
		}
	}
	if r.RunAsUID < 0 || r.RunAsUID > maxUID {
		return invalid("runtime."+keyRunAsUID, "%d: want the uid of an unprivileged user, 1 to %d", r.RunAsUID, maxUID)
	}
	return nil
}

// systemDirs are the kernel's: no directory of ours can be made there.
var systemDirs = []string{"/proc", "/sys", "/dev"}

func checkWorkDir(dir string) error {
	const key = "runtime." + keyWorkDir
	switch {
	case dir == "":
		return nil
	case !workDirPattern.MatchString(dir), path.Clean(dir) != dir:
		return invalid(key, "%q: want an absolute path below / of letters, digits, dots, dashes and underscores, without . or .. in it", dir)
	}
	for _, system := range systemDirs {
		if dir == system || strings.HasPrefix(dir, system+"/") {
			return invalid(key, "%q lies in %s, which is the kernel's", dir, system)
		}
	}
	return nil
}
