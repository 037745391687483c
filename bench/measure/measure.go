// Package measure times loops against each other on a machine that others use
// as well. Loops take turns, so that what disturbs the machine disturbs all of
// them alike; a sample in which the process did not get the processors it
// needed is rejected; the result is a median.
package measure

import (
	"cmp"
	"context"
	"slices"
	"time"
)

const (
	// leastShare is the CPU time, as a part of threads times wall time, without
	// which a sample was contended.
	leastShare = 0.97
	// leastSleepyShare is the same for loops that wait, for which leastShare
	// holds relative to what they use undisturbed.
	leastSleepyShare = 0.6
)

// Loop is one thing to be measured.
type Loop struct {
	// Threads is how many threads the loop keeps busy.
	Threads int
	// Waits says that its threads wait for each other, so that even alone it
	// uses less CPU time than Threads could. It is judged by the most it uses.
	Waits bool
	// Run does the thing n times.
	Run func(n int) error
}

// Options say how much is measured. The zero value is sane.
type Options struct {
	Sample time.Duration // length of a sample of one thread, or of doing the thing once if that is longer; 0 means 2 ms
	Accept int           // samples wanted of each loop; 0 means 11
	Tries  int           // samples taken of each loop at most; 0 means 4 times Accept
}

// Result is what is known of a loop.
type Result struct {
	// Seconds is the time of doing the thing once: the median of the accepted
	// samples; of all, when every one was contended; 0 when there is none.
	Seconds float64
	// Accepted and Rejected count samples.
	Accepted, Rejected int
}

// sample is one measurement.
type sample struct {
	seconds float64 // of doing the thing once
	share   float64 // CPU time as a part of threads times wall time
}

// Group measures loops that are to be compared. It is not safe for concurrent
// use, and nothing else should run in the process meanwhile.
type Group struct {
	loops   []Loop
	opts    Options
	clock   clock
	reps    []int // how often a sample does the thing; 0 before the first
	samples [][]sample
}

type clock interface {
	// now tells wall time and the CPU time of the process. judged is false
	// where the system does not tell the latter precisely enough: every sample
	// is accepted then.
	now() (wall, cpu time.Duration, judged bool)
	// rest gives the processors to those who wait for them.
	rest()
}

// NewGroup makes a group of loops.
func NewGroup(loops []Loop, o Options) *Group { return newGroup(loops, o, newSystemClock()) }

func newGroup(loops []Loop, o Options, c clock) *Group {
	// Short, because a scheduler lets nobody have a contended processor for
	// much longer; long enough for what starts and ends a sample not to count.
	o.Sample = cmp.Or(o.Sample, 2*time.Millisecond)
	o.Accept = cmp.Or(o.Accept, 11)
	o.Tries = cmp.Or(o.Tries, 4*o.Accept)
	return &Group{loops, o, c, make([]int, len(loops)), make([][]sample, len(loops))}
}

// Run takes samples of the loops in turns, one at least, until there are enough
// of all, or for as long as given, or until ctx is done, which is an error. It
// may be called again to go on.
func (g *Group) Run(ctx context.Context, long time.Duration) error {
	begin, _, _ := g.clock.now()
	for !g.Done() {
		for i := range g.loops {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := g.take(i); err != nil {
				return err
			}
			if now, _, _ := g.clock.now(); now-begin >= long {
				return nil
			}
		}
	}
	return nil
}

// Done reports whether there are enough samples. Loops that have enough go on
// taking their turns until then.
func (g *Group) Done() bool {
	for i := range g.loops {
		if r := g.Result(i); r.Accepted < g.opts.Accept && r.Accepted+r.Rejected < g.opts.Tries {
			return false
		}
	}
	return true
}

// take takes a sample of loop i.
func (g *Group) take(i int) error {
	if g.reps[i] == 0 {
		if err := g.calibrate(i); err != nil {
			return err
		}
	}
	wall, cpu, judged, err := g.time(i, g.reps[i])
	if err != nil {
		return err
	}
	s := sample{seconds: wall.Seconds() / float64(g.reps[i]), share: 1}
	if judged {
		s.share = cpu.Seconds() / (wall.Seconds() * float64(g.loops[i].Threads))
	}
	g.samples[i] = append(g.samples[i], s)
	if s.share < g.least(i) {
		// Who has used less than its share of a contended processor is the
		// less disturbed afterwards.
		g.clock.rest()
	}
	return nil
}

// calibrate finds how often a sample must do the thing. The first time, memory
// and code are cold; the quicker one of two is the less contended.
func (g *Group) calibrate(i int) error {
	for n := 1; ; {
		var wall time.Duration
		for try := range 2 {
			w, _, _, err := g.time(i, n)
			if err != nil {
				return err
			}
			if try == 0 || w < wall {
				wall = w
			}
		}
		if long := g.long(i); wall >= long/4 {
			g.reps[i] = max(1, int(float64(n)*float64(long)/float64(wall)+0.999))
			return nil
		}
		n *= 4
	}
}

// long is how long a sample of loop i is. Of several threads all but one must be
// woken first, which takes a tenth of a millisecond: that must not look like
// contention.
func (g *Group) long(i int) time.Duration {
	if g.loops[i].Threads > 1 {
		return 4 * g.opts.Sample
	}
	return g.opts.Sample
}

func (g *Group) time(i, n int) (wall, cpu time.Duration, judged bool, err error) {
	wall0, cpu0, _ := g.clock.now()
	err = g.loops[i].Run(n)
	wall1, cpu1, judged := g.clock.now()
	return wall1 - wall0, cpu1 - cpu0, judged, err
}

// Result is the result for loop i so far.
func (g *Group) Result(i int) Result {
	all := g.samples[i]
	least := g.least(i)
	var good, bad []float64
	for _, s := range all {
		if s.share >= least {
			good = append(good, s.seconds)
		} else {
			bad = append(bad, s.seconds)
		}
	}
	r := Result{Accepted: len(good), Rejected: len(bad)}
	if len(good) == 0 {
		good = bad
	}
	r.Seconds = median(good)
	return r
}

// least is the share below which a sample of loop i was contended. Of a loop
// that waits, the third-largest share is taken for the one it has undisturbed:
// the largest may be a freak.
func (g *Group) least(i int) float64 {
	if !g.loops[i].Waits {
		return leastShare
	}
	var shares []float64
	for _, s := range g.samples[i] {
		shares = append(shares, min(s.share, 1))
	}
	slices.Sort(shares)
	if n := len(shares); n > 0 {
		return max(leastSleepyShare, leastShare*shares[max(0, n-3)])
	}
	return leastSleepyShare
}

// median returns the middle of v, the mean of the two middle ones of an even
// number, or 0 of none. It reorders v.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	m := len(v) / 2
	if len(v)%2 == 1 {
		return v[m]
	}
	return (v[m-1] + v[m]) / 2
}
