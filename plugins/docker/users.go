package docker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// identity is who a container's processes are.
type identity struct{ uid, gid int }

// numeric reads a user of numbers alone: then nobody has to look into the image,
// but for the group where none is given, which is the user's own if the image
// knows it.
func numeric(user string) (who identity, whole, ok bool) {
	name, group, hasGroup := strings.Cut(user, ":")
	if name == "" {
		return identity{}, true, group == ""
	}
	uid, err := strconv.Atoi(name)
	if err != nil || uid < 0 {
		return identity{}, false, false
	}
	if !hasGroup {
		return identity{uid: uid}, uid == 0, true
	}
	gid, err := strconv.Atoi(group)
	if err != nil || gid < 0 {
		return identity{}, false, false
	}
	return identity{uid: uid, gid: gid}, true, true
}

// resolveUser finds out who user is, as the engine does at a container's start:
// a name from the image's passwd, or a number, and the group given or else that
// of the passwd entry or else 0.
func resolveUser(user string, passwd, group []byte) (identity, error) {
	name, groupName, hasGroup := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	number, err := strconv.Atoi(name)
	isNumber := err == nil && number >= 0
	var who identity
	found := false
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		const wanted = 4
		if len(fields) < wanted {
			continue
		}
		uid, errU := strconv.Atoi(fields[2])
		gid, errG := strconv.Atoi(fields[3])
		if errU != nil || errG != nil {
			continue
		}
		if fields[0] == name || isNumber && uid == number {
			who, found = identity{uid: uid, gid: gid}, true
			break
		}
	}
	switch {
	case !found && !isNumber:
		return identity{}, fmt.Errorf("user %q: the image's /etc/passwd has none of that name: %w", name, workspace.ErrInvalid)
	case !found:
		who.uid = number
	}
	if !hasGroup {
		return who, nil
	}
	who.gid, err = resolveGroup(groupName, group)
	return who, err
}

func resolveGroup(name string, group []byte) (int, error) {
	number, err := strconv.Atoi(name)
	isNumber := err == nil && number >= 0
	for line := range strings.Lines(string(group)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		const wanted = 3
		if len(fields) < wanted {
			continue
		}
		gid, err := strconv.Atoi(fields[2])
		if err == nil && fields[0] == name {
			return gid, nil
		}
	}
	if isNumber {
		return number, nil
	}
	return 0, fmt.Errorf("group %q: the image's /etc/group has none of that name: %w", name, workspace.ErrInvalid)
}
