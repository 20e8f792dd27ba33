package sandboxd

import "github.com/berth-dev/berth/plugin/sdk"

// Deviations are what the service cannot keep.
func Deviations() []sdk.Deviation {
	const closed = "the service keeps no labels, and of a session that it has closed not even the tenant: such a one is taken for this provider's by its id, a token or a workspace's name"
	return []sdk.Deviation{
		{Rule: "L3_StoppedIsStarted", Reason: "a service without workspace_root keeps no files of a session that it closes, for idleness too: it is gone then"},
		{Rule: "L3_AttachNeedsNoConfiguration", Reason: "a session that the service has closed is opened again on the configured runtime: the service does not know which one it had"},
		{Rule: "L4_ForeignNameIsInvalid", Reason: closed},
		{Rule: "L6_ForeignRefIsInvalid", Reason: closed},
		{Rule: "L8", Reason: "where the files are in a folder of the service's, a container is replaced over them without a word: what was installed outside of the work directory is gone; and where the image's stat tells no time of birth, another folder may have the number of the one before"},
	}
}

// Deviations are those of any provider of this package.
func (p *provider) Deviations() []sdk.Deviation { return Deviations() }
