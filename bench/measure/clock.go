package measure

import "time"

// systemClock counts wall time from when it was made.
type systemClock struct{ begin time.Time }

func newSystemClock() systemClock { return systemClock{time.Now()} }

func (c systemClock) now() (wall, cpu time.Duration, judged bool) {
	cpu, judged = processTime()
	return time.Since(c.begin), cpu, judged
}

func (c systemClock) rest() { time.Sleep(time.Millisecond) }
