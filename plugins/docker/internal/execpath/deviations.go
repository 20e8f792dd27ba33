package execpath

import "github.com/berth-dev/berth/plugin/sdk"

// Deviations are all that a container without a guest does not keep of the contract.
// What has no shell lacks features besides, as features may be lacking.
func Deviations() []sdk.Deviation {
	return []sdk.Deviation{
		{
			Rule:   "C5_TimeoutStopsTheTree",
			Reason: "a descendant that has left its process group, session and environment all at once is not found, and outlives a stop",
		},
		{
			Rule: "F9",
			Reason: "an image without a shell has files only, by the engine's archive calls, which act as root whoever the user is, " +
				"leave sockets out of a listing, and do not reach what the container has in memory: ErrUnsupported",
		},
	}
}
