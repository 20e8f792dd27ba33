package guest

import (
	"fmt"
	"strconv"
)

// The protocols that this client speaks, from and to: every one that was
// released.
const (
	protocolMin = 1
	protocolMax = 1
)

// ProtocolError is that of a guest with which no protocol is shared: one that
// was placed into the workspace by a much older or newer version (contract B6).
type ProtocolError struct {
	// GuestVersion and ClientVersion are those of the two programs.
	GuestVersion, ClientVersion string
	// GuestMin to GuestMax are the protocols that the guest speaks, ClientMin to
	// ClientMax those of this client.
	GuestMin, GuestMax, ClientMin, ClientMax int
}

// Error names both versions and says what to do.
func (e *ProtocolError) Error() string {
	advice := "use a plugin of the guest's version or later"
	if e.GuestMax < e.ClientMin {
		advice = "make the workspace again, or use an older plugin"
	}
	return fmt.Sprintf("the guest in the workspace, berth-guest %s, speaks guest protocol %s, and this plugin, %s, speaks %s: %s",
		e.GuestVersion, protocols(e.GuestMin, e.GuestMax), e.ClientVersion, protocols(e.ClientMin, e.ClientMax), advice)
}

func protocols(from, to int) string {
	if from == to {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d to %d", from, to)
}

// agree returns the highest protocol that both sides speak.
func agree(guestMin, guestMax int) (protocol int, ok bool) {
	protocol = min(guestMax, protocolMax)
	return protocol, protocol >= max(guestMin, protocolMin)
}
