package docker

import "testing"

// Podman's folders in memory cannot be given to a user.
func TestTmpfsOnPodman(t *testing.T) {
	for name, test := range map[string]struct {
		plan plan
		want string
	}{
		"root":            {plan{podman: true}, "mode=0700"},
		"root on docker":  {plan{}, "mode=0700"},
		"user":            {plan{podman: true, who: identity{uid: 1000, gid: 100}}, "mode=1777"},
		"user on docker":  {plan{who: identity{uid: 1000, gid: 100}}, "mode=0700,uid=1000,gid=100"},
		"group on docker": {plan{who: identity{gid: 100}}, "mode=0700,uid=0,gid=100"},
	} {
		if got := test.plan.ownedTmpfs("0700"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
