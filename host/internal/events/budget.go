package events

// Kinds of events of a plugin's budget.
const (
	Bounded     = "bounded"     // what bounds a plugin that was started
	OverSoft    = "over-soft"   // it uses more memory than is worth a word
	OutOfMemory = "oom"         // the kernel killed it for want of memory
	Quarantined = "quarantined" // it died too often, and is not started any more
	Released    = "released"    // it may be started again
)
