package docker

import (
	"errors"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestResolveUser(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken:x\nagent:x:1000:100:Agent:/home/agent:/bin/sh\nodd:x:many:1::/:/bin/sh\n"
	const group = "root:x:0:\nusers:x:100:\nstaff:x:50:agent\n"
	for _, test := range []struct {
		user    string
		want    identity
		invalid bool
	}{
		{"", identity{0, 0}, false},
		{"root", identity{0, 0}, false},
		{"agent", identity{1000, 100}, false},
		{"1000", identity{1000, 100}, false},
		{"4242", identity{4242, 0}, false},
		{"agent:staff", identity{1000, 50}, false},
		{"agent:77", identity{1000, 77}, false},
		{"4242:users", identity{4242, 100}, false},
		{"nobody", identity{}, true},
		{"odd", identity{}, true},
		{"agent:nosuch", identity{}, true},
	} {
		got, err := resolveUser(test.user, []byte(passwd), []byte(group))
		if test.invalid {
			if !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("user %q: %v (error %v), want ErrInvalid", test.user, got, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("user %q is %v (error %v), want %v", test.user, got, err, test.want)
		}
		// Numbers alone must come to the same without the files.
		if who, whole, ok := numeric(test.user); ok && whole && who != test.want {
			t.Errorf("user %q is %v by its numbers, want %v", test.user, who, test.want)
		}
	}
}

func TestResolveUser_WithoutPasswd(t *testing.T) {
	if who, err := resolveUser("1000", nil, nil); err != nil || who != (identity{1000, 0}) {
		t.Errorf("user 1000 is %v (error %v) in an image without a passwd, want 1000 and 0", who, err)
	}
}
