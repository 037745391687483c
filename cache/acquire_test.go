package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"nibble/concurrency"
	"nibble/internal/rule"
	"nibble/internal/testkit"
)

// gate is a loader that waits at a gate, and counts.
type gate struct {
	calls   atomic.Int32
	open    chan struct{}
	err     error
	stopped atomic.Bool // its context ended
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) load(ctx context.Context, items []Item[int], bufs [][]byte) error {
	g.calls.Add(1)
	select {
	case <-g.open:
	case <-ctx.Done():
		g.stopped.Store(true)
		return ctx.Err()
	}
	if g.err != nil {
		return g.err
	}
	return fill(ctx, items, bufs)
}

// The waiters of one key cause one decode and each get a lease.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20})
		g := newGate()
		for range 10 {
			go func() {
				l, err := c.Acquire(t.Context(), item(1, 1000), g.load)
				if err != nil || !holds(l.Bytes(), 1) {
					t.Errorf("joiner: %v", err)
				}
				l.Release()
			}()
		}
		synctest.Wait()
		if s := c.Stats(); s.InFlight == 0 || s.Leased != 0 {
			t.Errorf("while decoding: %+v", s)
		}
		close(g.open)
		synctest.Wait()
		if s := c.Stats(); g.calls.Load() != 1 || s.Misses != 1 || s.Hits != 9 || s.Joined != 9 {
			t.Errorf("%d decodes, %+v, want one miss and nine joined", g.calls.Load(), s)
		}
		atRest(t, c)
	})
}

// Every waiter is free to leave, the first one too, and the others get their
// lease.
func TestLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20})
		g := newGate()
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		var left, stayed error
		go func() { _, left = c.Acquire(ctx, item(1, 1000), g.load) }()
		synctest.Wait()
		go func() {
			var l Lease
			l, stayed = c.Acquire(t.Context(), item(1, 1000), g.load)
			l.Release()
		}()
		synctest.Wait()
		cancel(why)
		synctest.Wait()
		if !errors.Is(left, context.Canceled) || !errors.Is(left, why) {
			t.Errorf("the leader left with %v, want canceled and its cause", left)
		}
		close(g.open)
		synctest.Wait()
		if stayed != nil || g.calls.Load() != 1 || g.stopped.Load() {
			t.Errorf("who stayed got %v after %d decodes", stayed, g.calls.Load())
		}
		atRest(t, c)
	})
}

// When the last waiter has left the decode is cancelled, and its bytes come
// back; meanwhile a new request starts over.
func TestLastWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20})
		stuck := make(chan struct{})
		ended := false
		slow := func(ctx context.Context, _ []Item[int], _ [][]byte) error {
			<-ctx.Done()
			ended = true
			<-stuck // takes its time
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go func() {
				if _, err := c.Acquire(ctx, item(1, 1000), slow); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want canceled", err)
				}
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("the decode goes on although everybody left")
		}
		if s := c.Stats(); s.InFlight == 0 {
			t.Error("bytes were given back while the loader still has them")
		}
		mustAcquire(t, c, 1, 1000).Release()
		close(stuck)
		synctest.Wait()
		if s := c.Stats(); s.InFlight != 0 || s.BytesDecoded != 1000 {
			t.Errorf("after an abandoned and a good decode: %+v", s)
		}
		mustAcquire(t, c, 1, 1000).Release()
		if s := c.Stats(); s.Misses != 1 || s.Hits != 1 {
			t.Errorf("the end of the abandoned decode disturbed the good one: %+v", s)
		}
		atRest(t, c)
	})
}

// A done context returns its error, even where the answer is there.
func TestDoneContext(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	mustAcquire(t, c, 1, 1000).Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err1 := c.Acquire(ctx, item(1, 1000), fill)
	_, _, err2 := c.AcquireMany(ctx, nil, fill)
	_, err3 := c.Prefetch(ctx, []Item[int]{item(2, 1)}, fill)
	_, err4 := c.Buffer(ctx, 1)
	for _, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want canceled", err)
		}
	}
	atRest(t, c)
}

// An error reaches everybody who waits for it and is not remembered.
func TestLoadError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20})
		g := newGate()
		g.err = errors.New("bad tensor")
		for range 3 {
			go func() {
				if _, err := c.Acquire(t.Context(), item(1, 1000), g.load); err != g.err {
					t.Errorf("%v, want the loader's error", err)
				}
			}()
		}
		synctest.Wait()
		close(g.open)
		synctest.Wait()
		if n := g.calls.Load(); n != 1 {
			t.Errorf("%d decodes, want one for all", n)
		}
		if s := c.Stats(); s.Used != s.ArenaFree || s.Entries != 0 || s.Hits+s.Misses != 0 {
			t.Errorf("a failed decode left something: %+v", s)
		}
		mustAcquire(t, c, 1, 1000).Release()
		atRest(t, c)
	})
}

// Who joined a batch that failed over an item of somebody else tries again.
func TestJoinerOfForeignFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20})
		g := newGate()
		g.err = errors.New("item 2 is bad")
		go func() {
			if _, _, err := c.AcquireMany(t.Context(), []Item[int]{item(1, 1000), item(2, 1000)}, g.load); err != g.err {
				t.Errorf("%v, want the loader's error", err)
			}
		}()
		synctest.Wait()
		for range 3 {
			go func() { mustAcquire(t, c, 1, 1000).Release() }()
		}
		synctest.Wait()
		close(g.open)
		synctest.Wait()
		if s := c.Stats(); s.Misses != 1 || s.Hits != 2 {
			t.Errorf("%+v, want one decode of item 1 for all three", s)
		}
		atRest(t, c)
	})
}

// Handing a small decode over costs more than the decode: who misses little, and
// nothing to wait for, loads it itself, and only then.
func TestHere(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20, Here: 30})
	mustAcquire(t, c, 0, 100).Release()
	mustAcquire(t, c, 12, 10).Release()
	for name, tt := range map[string]struct {
		items []Item[int]
		here  bool
	}{
		"one":         {[]Item[int]{item(1, 10)}, true},
		"one twice":   {[]Item[int]{item(2, 20), item(2, 20)}, true},
		"three":       {[]Item[int]{item(3, 10), item(4, 10), item(5, 10)}, true},
		"too much":    {[]Item[int]{item(6, 10), item(7, 21)}, false},
		"a long hit":  {[]Item[int]{item(0, 100), item(8, 10)}, true},
		"waits":       {[]Item[int]{{Key: 9, Size: 10, Waits: true}}, false},
		"one waits":   {[]Item[int]{item(10, 10), {Key: 11, Size: 10, Waits: true}}, false},
		"a hit waits": {[]Item[int]{{Key: 12, Size: 10, Waits: true}, item(13, 10)}, true},
	} {
		stack := make([]byte, 1<<16)
		leases, _, err := c.AcquireMany(t.Context(), tt.items, func(ctx context.Context, items []Item[int], bufs [][]byte) error {
			stack = stack[:runtime.Stack(stack, false)]
			return fill(ctx, items, bufs)
		})
		if err != nil {
			t.Fatal(err)
		}
		if here := strings.Contains(string(stack), "TestHere("); here != tt.here {
			t.Errorf("%s: loaded on the caller's goroutine: %v, want %v", name, here, tt.here)
		}
		for i, l := range leases {
			if !holds(l.Bytes(), tt.items[i].Key) {
				t.Errorf("%s: lease %d lost its bytes", name, i)
			}
			l.Release()
		}
	}
	atRest(t, c)
}

// Others join such a decode as they do any other, and get it even if the
// request that does it has no use for it any more: its context is done.
func TestHereIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20, Here: 1 << 20})
		g := newGate()
		ctx, cancel := context.WithCancel(t.Context())
		var first, joined error
		go func() { _, first = c.Acquire(ctx, item(1, 1000), g.load) }()
		synctest.Wait()
		go func() {
			var l Lease
			l, joined = c.Acquire(t.Context(), item(1, 1000), g.load)
			l.Release()
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if first != nil || g.stopped.Load() {
			t.Errorf("the request that decodes returned %v before the end", first)
		}
		close(g.open)
		synctest.Wait()
		if !errors.Is(first, context.Canceled) || joined != nil || g.calls.Load() != 1 {
			t.Errorf("%v and %v after %d decodes, want canceled, nil and 1", first, joined, g.calls.Load())
		}
		atRest(t, c)
	})
}

// Who decodes alone can leave: the decode ends with its context.
func TestHereLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20, Here: 1 << 20})
		g := newGate()
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = c.Acquire(ctx, item(1, 1000), g.load) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || !g.stopped.Load() {
			t.Errorf("%v, decode stopped: %v; want canceled and stopped", err, g.stopped.Load())
		}
		mustAcquire(t, c, 1, 1000).Release()
		atRest(t, c)
	})
}

// Nor does it go on for somebody who joined, and left after the one who decodes.
func TestHereLeavesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1 << 20, Here: 1 << 20})
		g := newGate()
		var errs [2]error
		var cancels [2]context.CancelFunc
		for i := range 2 {
			var ctx context.Context
			ctx, cancels[i] = context.WithCancel(t.Context())
			go func() { _, errs[i] = c.Acquire(ctx, item(1, 1000), g.load) }()
			synctest.Wait()
		}
		cancels[0]()
		synctest.Wait()
		if g.stopped.Load() {
			t.Error("the decode stopped though somebody waits")
		}
		cancels[1]()
		synctest.Wait()
		if !g.stopped.Load() || !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
			t.Errorf("stopped: %v, %v; want canceled twice", g.stopped.Load(), errs)
		}
		mustAcquire(t, c, 1, 1000).Release()
		atRest(t, c)
	})
}

// Such a decode that fails, in whatever way, leaves nothing behind.
func TestHereFails(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20, Here: 1 << 20})
	if _, err := c.Acquire(t.Context(), item(1, 1000), func(context.Context, []Item[int], [][]byte) error { return errUnlucky }); err != errUnlucky {
		t.Errorf("%v, want the loader's error", err)
	}
	func() {
		defer func() {
			if p, ok := recover().(*concurrency.Panic); !ok || p.Value != "boom" {
				t.Errorf("recovered %v, want boom", p)
			}
		}()
		_, _ = c.Acquire(t.Context(), item(1, 1000), burst)
	}()
	mustAcquire(t, c, 2, 1000).Release()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, err := c.AcquireMany(t.Context(), []Item[int]{item(1, 1000), item(2, 1000)}, func(context.Context, []Item[int], [][]byte) error {
			runtime.Goexit()
			return nil
		})
		t.Errorf("AcquireMany returned, %v, from a goroutine that has exited", err)
	}()
	<-ended
	atRest(t, c)
}

// A panic in the loader reaches the waiters with the stack of the loader.
func TestLoadPanic(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	defer atRest(t, c)
	defer func() {
		p, ok := recover().(*concurrency.Panic)
		if !ok || p.Value != "boom" || !strings.Contains(p.Error(), "burst") {
			t.Errorf("recovered %v, want boom with the loader's stack", p)
		}
	}()
	_, err := c.Acquire(t.Context(), item(1, 1000), burst)
	t.Errorf("Acquire returned %v", err)
}

func burst(context.Context, []Item[int], [][]byte) error { panic("boom") }

// A panic that nobody waits for any more ends the process instead of being
// swallowed. The test runs itself, with the panic, as another process.
func TestUnheardPanicCrashes(t *testing.T) {
	if os.Getenv("NIBBLE_CRASH") != "" {
		c := New[int](Options{Budget: 1 << 20})
		_, _ = c.Prefetch(t.Context(), []Item[int]{item(1, 10)}, burst)
		select {}
	}
	if testkit.Emulated() {
		t.Skip("an emulator runs the test, and nothing that the test starts")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestUnheardPanicCrashes$")
	cmd.Env = append(os.Environ(), "NIBBLE_CRASH=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "boom") || !strings.Contains(string(out), "burst") {
		t.Errorf("%v, want a crash with the value and the stack:\n%s", err, out)
	}
}

// An output that cannot be mapped is an error, and leaves nothing charged.
func TestUnmappableOutput(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	if _, err := c.Acquire(t.Context(), item(1, maxSize), fill); err == nil {
		t.Error("2^62 bytes were mapped")
	}
	mustAcquire(t, c, 1, 1000).Release()
	atRest(t, c)
}

func TestLoadGoexit(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	_, err := c.Acquire(t.Context(), item(1, 1000), func(context.Context, []Item[int], [][]byte) error {
		runtime.Goexit()
		return nil
	})
	if err != errGoexit {
		t.Errorf("%v, want %v", err, errGoexit)
	}
	atRest(t, c)
}

// The loader's context carries the values of the caller's.
func TestLoadContextValues(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	type id struct{}
	ctx := context.WithValue(t.Context(), id{}, "trace")
	l, err := c.Acquire(ctx, item(1, 10), func(ctx context.Context, _ []Item[int], _ [][]byte) error {
		if ctx.Value(id{}) != "trace" {
			return errors.New("the value is lost")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	atRest(t, c)
}

func TestAcquireMany(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	mustAcquire(t, c, 2, 2000).Release()
	var asked []int
	load := func(ctx context.Context, items []Item[int], bufs [][]byte) error {
		for _, it := range items {
			asked = append(asked, it.Key)
		}
		return fill(ctx, items, bufs)
	}
	want := []int{1, 2, 3, 1, 2}
	var items []Item[int]
	for _, k := range want {
		items = append(items, item(k, int64(k)*1000))
	}
	leases, hits, err := c.AcquireMany(t.Context(), items, load)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range leases {
		if b := l.Bytes(); len(b) != want[i]*1000 || !holds(b, want[i]) {
			t.Errorf("lease %d is not of item %d", i, want[i])
		}
	}
	if fmt.Sprint(asked) != "[1 3]" || hits != 3 {
		t.Errorf("decoded %v with %d hits, want [1 3] with 3: one was there, two were repetitions", asked, hits)
	}
	if n := len(c.Leases(func(k int) bool { return k != 3 })); n != 4 {
		t.Errorf("%d leases of 1 and 2 are open, want 4", n)
	}
	for _, l := range leases {
		if !l.Release() {
			t.Error("two leases of the list are one")
		}
	}
	if s := c.Stats(); s.Hits != 3 || s.Misses != 3 || s.BytesAcquired != 11000 || s.BytesDecoded != 6000 {
		t.Errorf("%+v, want 6 acquisitions of 11000 bytes, 6000 decoded", s)
	}
	if ls, hits, err := c.AcquireMany(t.Context(), nil, load); ls != nil || hits != 0 || err != nil {
		t.Errorf("nothing was asked for: %v %d %v", ls, hits, err)
	}
	atRest(t, c)
}

// More than the budget at once is an error that says how much, not a wait.
func TestAcquireManyAboveBudget(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	items := []Item[int]{item(1, 600<<10), item(2, 600<<10)}
	_, _, err := c.AcquireMany(t.Context(), items, fill)
	if !errors.Is(err, rule.ErrBudget) || !strings.Contains(err.Error(), "1228800") {
		t.Errorf("%v, want ErrBudget and the 1228800 bytes needed", err)
	}
	// One key twice is one output.
	leases, _, err := c.AcquireMany(t.Context(), []Item[int]{item(1, 2<<20), item(1, 2<<20)}, fill)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		l.Release()
	}
	atRest(t, c)
}

// Hits in regions with slack do not make a request wait for itself.
func TestAcquireManyFitsDespiteSlack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 900 << 10})
		mustAcquire(t, c, 0, 448<<10).Release()
		c.Drop(func(int) bool { return true })
		mustAcquire(t, c, 1, 400<<10).Release() // takes the region of 448 KiB
		if s := c.Stats(); s.Used != 448<<10 {
			t.Fatalf("%d bytes are used; the test needs the slack", s.Used)
		}
		// 400 + 500 KiB fit the budget, 448 + 500 do not.
		leases, hits, err := c.AcquireMany(t.Context(), []Item[int]{item(1, 400<<10), item(2, 500<<10)}, fill)
		if err != nil || hits != 0 {
			t.Fatalf("%d hits, %v", hits, err)
		}
		for _, l := range leases {
			l.Release()
		}
		atRest(t, c)
	})
}

// Two requests that each need most of the budget take turns; neither keeps a
// part while it waits.
func TestAcquireManyHoldsNothingWhileWaiting(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20 {
				items := []Item[int]{item((g+i)%6, 300<<10), item((g+i*5+1)%6, 300<<10), item((g*3+i)%6, 300<<10)}
				leases, _, err := c.AcquireMany(t.Context(), items, fill)
				if err != nil {
					t.Error(err)
					return
				}
				for j, l := range leases {
					if !holds(l.Bytes(), items[j].Key) {
						t.Errorf("lease of %d has the wrong bytes", items[j].Key)
					}
					l.Release()
				}
			}
		})
	}
	all.Wait()
	atRest(t, c)
}

// A context that ends just when the decode is done takes nothing from others:
// the output stays.
func TestContextEndsAfterDecode(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	leader := &request[int]{ctx: ctx, items: []Item[int]{item(1, 1000)}, load: fill}
	joiner := &request[int]{ctx: ctx, items: []Item[int]{item(1, 1000)}, load: fill}
	for _, r := range []*request[int]{leader, joiner} {
		if err := c.submit(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	leader.batch.run()
	cancel()
	if _, err := c.collect(ctx, joiner); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	c.giveUp(leader)
	if l, ok := c.TryAcquire(1); !ok || !holds(l.Bytes(), 1) {
		t.Error("the decoded output is gone")
	} else {
		l.Release()
	}
	atRest(t, c)
}

// When everybody has left before the decode began it does not begin.
func TestEverybodyLeavesBeforeDecode(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	g := newGate()
	close(g.open)
	r := &request[int]{ctx: t.Context(), items: []Item[int]{item(1, 1000)}, load: g.load}
	if err := c.submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c.giveUp(r)
	r.batch.run()
	if n := g.calls.Load(); n != 0 {
		t.Errorf("the loader was called %d times for nobody", n)
	}
	if s := c.Stats(); s.Entries != 0 || s.Used != 0 {
		t.Errorf("something is left: %+v", s)
	}
	atRest(t, c)
}

// A hit that a waiting request had in mind is an entry like others when the
// request leaves: it can be evicted.
func TestHitOfLeavingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 << 10})
		mustAcquire(t, c, 1, 100<<10).Release()
		l := mustAcquire(t, c, 2, 500<<10)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _, err := c.AcquireMany(ctx, []Item[int]{item(1, 100<<10), item(3, 600<<10)}, fill)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want canceled", err)
			}
		}()
		synctest.Wait()
		if got := resident(c, 4); got != "[1 2]" {
			t.Errorf("%s are in the cache, want [1 2]: a request does not evict its own hit", got)
		}
		cancel()
		synctest.Wait()
		mustAcquire(t, c, 4, 500<<10).Release() // waits for ever if 1 cannot go
		if got := resident(c, 4); got != "[2]" {
			t.Errorf("%s are in the cache, want [2]", got)
		}
		l.Release()
		atRest(t, c)
	})
}

func TestNegativeSizePanics(t *testing.T) {
	c := New[int](Options{})
	for name, call := range map[string]func(){
		"item":   func() { _, _, _ = c.AcquireMany(t.Context(), []Item[int]{item(1, -1)}, fill) },
		"buffer": func() { _, _ = c.Buffer(t.Context(), -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of -1 bytes: no panic", name)
				}
			}()
			call()
		}()
	}
}
