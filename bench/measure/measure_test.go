package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// fakeClock is turned by the loops themselves.
type fakeClock struct {
	wall, cpu time.Duration
	blind     bool // does not tell CPU time
	rests     int
}

func (c *fakeClock) now() (wall, cpu time.Duration, judged bool) { return c.wall, c.cpu, !c.blind }

func (c *fakeClock) rest() { c.rests++ }

// script is a loop that takes wall times and CPU shares as written, one pair a
// sample and then the last one for ever.
type script struct {
	clock  *fakeClock
	walls  []time.Duration
	shares []float64
	calls  int
}

func (s *script) run(int) error {
	// The first two calls warm up and calibrate.
	i := max(0, s.calls-2)
	wall, share := s.walls[min(i, len(s.walls)-1)], s.shares[min(i, len(s.shares)-1)]
	s.clock.wall += wall
	s.clock.cpu += time.Duration(float64(wall) * share)
	s.calls++
	return nil
}

const ms = time.Millisecond

func TestContendedSamplesAreRejected(t *testing.T) {
	for _, c := range []struct {
		name     string
		loop     Loop
		shares   []float64 // of one thread
		blind    bool
		accepted int
	}{
		{"just enough", Loop{Threads: 1}, []float64{0.97, 0.98, 1, 1.02}, false, 4},
		{"just not enough", Loop{Threads: 1}, []float64{0.969, 0.5, 1, 1}, false, 2},
		{"two threads need two processors", Loop{Threads: 2}, []float64{1.93, 1.95, 2, 1}, false, 2},
		{"all contended", Loop{Threads: 2}, []float64{1, 1, 1, 1}, false, 0},
		{"no CPU time to judge by", Loop{Threads: 1}, []float64{0, 0, 0, 0}, true, 4},
		{"waits: judged by what it can use", Loop{Threads: 2, Waits: true}, []float64{1.7, 1.69, 1.71, 1.3}, false, 3},
		{"waits: a freak does not set the measure", Loop{Threads: 2, Waits: true}, []float64{2, 1.7, 1.7, 1.7}, false, 4},
		{"waits: contended all the time", Loop{Threads: 2, Waits: true}, []float64{1.1, 1.1, 1.1, 1.1}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &fakeClock{blind: c.blind}
			s := &script{clock: clock, walls: []time.Duration{5 * ms}, shares: c.shares}
			c.loop.Run = s.run
			g := newGroup([]Loop{c.loop}, Options{Sample: 5 * ms, Accept: 4, Tries: 4}, clock)
			if err := g.Run(context.Background(), time.Hour); err != nil {
				t.Fatal(err)
			}
			r := g.Result(0)
			if r.Accepted != c.accepted || r.Accepted+r.Rejected != 4 {
				t.Errorf("%d accepted, %d rejected; want %d accepted of 4", r.Accepted, r.Rejected, c.accepted)
			}
		})
	}
}

// A contended sample is slow: it must not move the median. When there is no
// other, it is better than nothing.
func TestMedianOfTheAccepted(t *testing.T) {
	for _, c := range []struct {
		walls  []time.Duration
		shares []float64
		want   float64
	}{
		{[]time.Duration{10 * ms, 90 * ms, 12 * ms, 80 * ms, 11 * ms}, []float64{1, 0.3, 1, 0.3, 1}, 0.011},
		{[]time.Duration{10 * ms, 12 * ms, 90 * ms, 80 * ms, 70 * ms}, []float64{1, 1, 0.3, 0.3, 0.3}, 0.011},
		{[]time.Duration{70 * ms, 90 * ms, 80 * ms, 85 * ms, 60 * ms}, []float64{0.3}, 0.080},
	} {
		clock := &fakeClock{}
		s := &script{clock: clock, walls: c.walls, shares: c.shares}
		g := newGroup([]Loop{{Threads: 1, Run: s.run}}, Options{Sample: 5 * ms, Accept: 5, Tries: 5}, clock)
		if err := g.Run(context.Background(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := g.Result(0).Seconds; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("walls %v, shares %v: %v s; want %v", c.walls, c.shares, got, c.want)
		}
	}
}

// Loops take turns, also when one needs more samples than the other, and what
// takes no time is repeated until a sample is long enough.
func TestLoopsTakeTurns(t *testing.T) {
	clock := &fakeClock{}
	var order []int
	reps := map[int]int{}
	loop := func(i int, each time.Duration, share float64) Loop {
		return Loop{Threads: 1, Run: func(n int) error {
			order = append(order, i)
			reps[i] = n
			clock.wall += time.Duration(n) * each
			clock.cpu += time.Duration(float64(n) * share * float64(each))
			return nil
		}}
	}
	loops := []Loop{loop(0, 5*ms, 1), loop(1, 2500*time.Microsecond, 0.5)}
	g := newGroup(loops, Options{Sample: 5 * ms, Accept: 2, Tries: 4}, clock)
	if err := g.Run(context.Background(), time.Hour); err != nil {
		t.Fatal(err)
	}
	want := []int{0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1} // each is warmed up and calibrated at its first turn
	if !slices.Equal(order, want) {
		t.Errorf("order %v; want %v", order, want)
	}
	if reps[0] != 1 || reps[1] != 2 {
		t.Errorf("repetitions %v; want 1 and 2", reps)
	}
	if clock.rests != 4 {
		t.Errorf("rested %d times; want once after each rejected sample", clock.rests)
	}
	if r := g.Result(1); r.Accepted != 0 || r.Rejected != 4 {
		t.Errorf("result %+v; want 4 rejected", r)
	}
}

// Samples are long enough; of several threads they are longer, because all but
// one are woken during it.
func TestShortLoopsAreRepeated(t *testing.T) {
	for threads, want := range map[int]time.Duration{1: 5 * ms, 2: 20 * ms} {
		clock := &fakeClock{}
		var last int
		g := newGroup([]Loop{{Threads: threads, Run: func(n int) error {
			last = n
			clock.wall += time.Duration(n) * 100
			clock.cpu += time.Duration(n*threads) * 100
			return nil
		}}}, Options{Sample: 5 * ms, Accept: 1}, clock)
		if err := g.Run(context.Background(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if took := time.Duration(last) * 100; took < want || took > want*6/5 {
			t.Errorf("%d threads: a sample took %v; want %v", threads, took, want)
		}
		if got := g.Result(0).Seconds; math.Abs(got-100e-9) > 1e-12 {
			t.Errorf("%d threads: %v s; want 100 ns", threads, got)
		}
	}
}

func TestRunEnds(t *testing.T) {
	clock := &fakeClock{}
	s := &script{clock: clock, walls: []time.Duration{5 * ms}, shares: []float64{0.1}}
	g := newGroup([]Loop{{Threads: 1, Run: s.run}}, Options{Tries: 1000}, clock)
	if err := g.Run(context.Background(), 50*ms); err != nil || clock.wall != 50*ms {
		t.Errorf("after %v: %v; want an end at 50 ms", clock.wall, err)
	}
	if err := g.Run(context.Background(), 50*ms); err != nil || clock.wall != 100*ms {
		t.Errorf("after %v: %v; want to go on until 100 ms", clock.wall, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Run(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("done context: %v", err)
	}
	broken := errors.New("broken")
	g = newGroup([]Loop{{Threads: 1, Run: func(int) error { return broken }}}, Options{}, clock)
	if err := g.Run(context.Background(), time.Hour); !errors.Is(err, broken) {
		t.Errorf("failing loop: %v", err)
	}
}

func TestNothingMeasured(t *testing.T) {
	g := NewGroup([]Loop{{Threads: 1}}, Options{})
	if r := g.Result(0); r != (Result{}) {
		t.Errorf("result without samples: %+v", r)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 9, 1, 2}, 3}} {
		if got := median(slices.Clone(c.v)); got != c.want {
			t.Errorf("median of %v: %v; want %v", c.v, got, c.want)
		}
	}
}

// The system's clock sees a busy thread as busy, and a sleeping one as not.
func TestSystemClock(t *testing.T) {
	c := newSystemClock()
	_, cpu0, judged := c.now()
	if !judged {
		t.Skip("the system does not tell CPU time precisely")
	}
	begin := time.Now()
	for cpu := cpu0; cpu-cpu0 < 5*ms; _, cpu, _ = c.now() {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("10 s of work are less than 5 ms of CPU time")
		}
	}
	_, cpu0, _ = c.now()
	time.Sleep(40 * ms)
	if _, cpu, _ := c.now(); cpu-cpu0 > 20*ms {
		t.Errorf("40 ms of sleep took %v of CPU time", cpu-cpu0)
	}
}
