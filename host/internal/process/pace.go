package process

import "time"

const (
	// paceSlice and pacePause are how long the output of one plugin is worked at
	// without a pause, and how long that is: a fifth of one processor at most. Go
	// looks for what has arrived on connections when a processor has nothing else to
	// do, or every 10 ms. A plugin that floods its log would have every other
	// provider's answers wait that long.
	paceSlice = 250 * time.Microsecond
	pacePause = time.Millisecond
)

// pace spreads work that never ends by itself. The zero value is ready.
type pace struct{ spent time.Duration }

// spend does some of the work, and pauses if it is time to.
func (p *pace) spend(work func()) {
	began := time.Now()
	work()
	if p.spent += time.Since(began); p.spent >= paceSlice {
		time.Sleep(pacePause)
		p.spent = 0
	}
}
