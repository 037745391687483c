package cache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nibble/internal/rule"
)

const kib = 1 << 10

// order records who was served when.
type order struct {
	mu    sync.Mutex
	names []string
}

func (o *order) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, name)
}

func (o *order) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.names, " ")
}

// wants starts a request on its own goroutine, which keeps its lease until the
// returned channel is closed.
func (o *order) wants(t *testing.T, c *Cache[int], name string, key int, size int64) (release chan struct{}) {
	release = make(chan struct{})
	go func() {
		l, err := c.Acquire(t.Context(), item(key, size), fill)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		o.add(name)
		<-release
		l.Release()
	}()
	synctest.Wait()
	return release
}

// Requests that wait are served in order: the large one at the head is not
// overtaken by small ones that would fit, and the small ones follow together.
func TestFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 * kib})
		var o order
		a := o.wants(t, c, "a", 1, 400*kib)
		b := o.wants(t, c, "b", 2, 400*kib)
		large := o.wants(t, c, "large", 3, 900*kib)
		s1 := o.wants(t, c, "s1", 4, 100*kib)
		s2 := o.wants(t, c, "s2", 5, 100*kib)
		if got := o.String(); got != "a b" || c.Stats().Waiting != 3 {
			t.Errorf("served %s, %d waiting; s1 and s2 would fit but must not overtake", got, c.Stats().Waiting)
		}
		close(a)
		synctest.Wait()
		if got := o.String(); got != "a b" {
			t.Errorf("served %s: 600 KiB are free, nobody but large may have them", got)
		}
		close(b)
		synctest.Wait()
		// The two run at once, so either may be the first to say so.
		if got := o.String(); got != "a b large s1" && got != "a b s1 large" {
			t.Errorf("served %q: s1 fits beside large, s2 does not", got)
		}
		close(large)
		synctest.Wait()
		if got := o.String(); !strings.HasSuffix(got, " s2") {
			t.Errorf("served %q, want s2 last", got)
		}
		close(s1)
		close(s2)
		synctest.Wait()
		atRest(t, c)
	})
}

// While a request waits, what becomes idle goes to it, so hits on idle entries
// cannot starve it; hits on leased entries need no bytes and go on.
func TestHitsDoNotStarveTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 * kib})
		var o order
		a := o.wants(t, c, "a", 1, 400*kib)
		b := o.wants(t, c, "b", 2, 400*kib)
		large := o.wants(t, c, "large", 3, 900*kib)
		if l, ok := c.TryAcquire(2); !ok {
			t.Error("a hit on a leased entry has to wait")
		} else {
			l.Release()
		}
		close(a)
		synctest.Wait()
		if _, ok := c.TryAcquire(1); ok {
			t.Error("an entry that became idle was leased again while large waits for its bytes")
		}
		close(b)
		synctest.Wait()
		close(large)
		synctest.Wait()
		if got := o.String(); got != "a b large" {
			t.Errorf("served %q", got)
		}
		atRest(t, c)
	})
}

// When the head leaves, the next are tried at once.
func TestHeadLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 * kib})
		var o order
		a := o.wants(t, c, "a", 1, 400*kib)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = c.Acquire(ctx, item(2, 900*kib), fill) }()
		synctest.Wait()
		small := o.wants(t, c, "small", 3, 100*kib)
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the head left with %v", err)
		}
		if got := o.String(); got != "a small" {
			t.Errorf("served %q after the head had left", got)
		}
		close(a)
		close(small)
		synctest.Wait()
		if s := c.Stats(); s.Waits != 2 {
			t.Errorf("%d requests waited, want 2", s.Waits)
		}
		atRest(t, c)
	})
}

// A single output above the budget waits until it is the only charge, is mapped
// exactly and unmapped on release.
func TestOversize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const big = 2000*kib + 17
		c := New[int](Options{Budget: 1000 * kib})
		var o order
		mustAcquire(t, c, 9, 300*kib).Release() // idle: goes
		a := o.wants(t, c, "a", 1, 300*kib)
		large := o.wants(t, c, "large", 2, big)
		small := o.wants(t, c, "small", 3, 1)
		if got := o.String(); got != "a" {
			t.Errorf("served %q while a is charged", got)
		}
		close(a)
		synctest.Wait()
		if s := c.Stats(); o.String() != "a large" || s.Used != big || s.Leased != big {
			t.Errorf("served %v, %+v: want the large one alone, charged exactly", o.String(), s)
		}
		if l, ok := c.TryAcquire(2); !ok {
			t.Error("no hit on the large output while it is leased")
		} else {
			l.Release()
		}
		close(large)
		synctest.Wait()
		if s := c.Stats(); s.Used > s.Budget || s.Peak != big || s.Oversize != 1 {
			t.Errorf("after release: %+v, want the large one gone and the peak %d", s, big)
		}
		if _, ok := c.TryAcquire(2); ok {
			t.Error("an output above the budget was kept")
		}
		close(small)
		synctest.Wait()
		atRest(t, c)
	})
}

func TestStrict(t *testing.T) {
	c := New[int](Options{Budget: 1000 * kib, Strict: true})
	if _, err := c.Acquire(t.Context(), item(1, 1001*kib), fill); !errors.Is(err, rule.ErrBudget) {
		t.Errorf("output: %v, want ErrBudget", err)
	}
	if _, err := c.Buffer(t.Context(), 1001*kib); !errors.Is(err, rule.ErrBudget) {
		t.Errorf("buffer: %v, want ErrBudget", err)
	}
	mustAcquire(t, c, 1, 1000*kib).Release()
	atRest(t, c)
}

func TestFailWhenFull(t *testing.T) {
	c := New[int](Options{Budget: 1000 * kib, FailWhenFull: true})
	mustAcquire(t, c, 2, 200*kib).Release()
	l := mustAcquire(t, c, 1, 600*kib)
	for _, size := range []int64{500 * kib, 2000 * kib} {
		if _, err := c.Acquire(t.Context(), item(3, size), fill); !errors.Is(err, rule.ErrBudget) {
			t.Errorf("%d bytes: %v, want ErrBudget at once", size, err)
		}
	}
	if s := c.Stats(); s.Evictions != 0 || s.Waits != 0 {
		t.Errorf("a request that failed evicted or waited: %+v", s)
	}
	l.Release()
	mustAcquire(t, c, 3, 500*kib).Release()
	atRest(t, c)
}

// With no budget one output exists at a time, and nothing is kept.
func TestNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{})
		var o order
		a := o.wants(t, c, "a", 1, 100)
		b := o.wants(t, c, "b", 2, 100)
		if got := o.String(); got != "a" {
			t.Errorf("served %q at once", got)
		}
		close(a)
		synctest.Wait()
		close(b)
		synctest.Wait()
		if s := c.Stats(); s.Entries != 0 || s.Used != 0 || s.Peak != 100 {
			t.Errorf("%+v, want nothing kept and a peak of one output", s)
		}
		atRest(t, c)
	})
}

func TestSetBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 * kib})
		mustAcquire(t, c, 1, 300*kib).Release()
		l := mustAcquire(t, c, 2, 400*kib)
		buf, err := c.Buffer(t.Context(), 100*kib)
		if err != nil {
			t.Fatal(err)
		}
		buf.Free() // 100 KiB free in the arena
		if over := c.SetBudget(750 * kib); over != 0 {
			t.Errorf("over by %d, want 0: free memory goes first", over)
		}
		if s := c.Stats(); s.Evictions != 0 || s.Used != 700*kib {
			t.Errorf("%+v, want 700 KiB used and nothing evicted", s)
		}
		if over := c.SetBudget(150 * kib); over != 250*kib {
			t.Errorf("over by %d, want the lease's 400 KiB less 150", over)
		}
		// A waiter for 500 KiB is oversize under 150 KiB, not under 900.
		var o order
		w := o.wants(t, c, "w", 3, 500*kib)
		_ = c.SetBudget(900 * kib)
		synctest.Wait()
		if o.String() != "w" {
			t.Error("the waiter was not judged anew when the budget grew")
		}
		// Several outputs at once can become impossible while they wait.
		var many error
		go func() {
			_, _, many = c.AcquireMany(t.Context(), []Item[int]{item(4, 400*kib), item(5, 400*kib)}, fill)
		}()
		synctest.Wait()
		c.SetBudget(700 * kib)
		synctest.Wait()
		if !errors.Is(many, rule.ErrBudget) {
			t.Errorf("%v, want ErrBudget: 800 KiB will never fit 700", many)
		}
		l.Release()
		close(w)
		synctest.Wait()
		if over := c.SetBudget(-5); over != 0 || c.Stats().Entries != 0 {
			t.Errorf("no budget: over %d, %d entries", over, c.Stats().Entries)
		}
		atRest(t, c)
	})
}

// After 5 s the open leases are named, once.
func TestSlowIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines order
		c := New[int](Options{Budget: 1000 * kib, Log: lines.add})
		l := mustAcquire(t, c, 77, 900*kib)
		go func() {
			l, err := c.Acquire(t.Context(), item(2, 800*kib), fill)
			if err != nil {
				t.Error(err)
			}
			l.Release()
		}()
		time.Sleep(4900 * time.Millisecond)
		synctest.Wait()
		if got := lines.String(); got != "" {
			t.Errorf("logged too early: %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "waited 5s for 819200 bytes of the cache; open leases: 1 77"
		if got := lines.String(); got != want {
			t.Errorf("logged %q, want once %q", got, want)
		}
		l.Release()
		synctest.Wait()
		atRest(t, c)
	})
}

func TestSlowLogIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines order
		c := New[int](Options{Budget: 1000 * kib, Slow: time.Second, Log: lines.add})
		var leases []Lease
		for key := range 10 {
			leases = append(leases, mustAcquire(t, c, key, 90*kib))
		}
		go func() {
			l, _ := c.Acquire(t.Context(), item(99, 800*kib), fill)
			l.Release()
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if line := lines.String(); !strings.Contains(line, "open leases: 10 ") || !strings.HasSuffix(line, " …") {
			t.Errorf("logged %q, want ten leases counted and eight named", line)
		}
		for _, l := range leases {
			l.Release()
		}
		synctest.Wait()
		atRest(t, c)
	})
}

func TestBuffer(t *testing.T) {
	c := New[int](Options{Budget: 1000 * kib})
	b, err := c.Buffer(t.Context(), 100*kib)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Bytes()) != 100*kib || !b.Fresh() || c.Stats().Scratch != 100*kib {
		t.Errorf("%d bytes, fresh %v, %+v", len(b.Bytes()), b.Fresh(), c.Stats())
	}
	clear(b.Bytes())
	b.Free()
	b.Free()
	if b.Bytes() != nil || c.Stats().Scratch != 0 {
		t.Errorf("after Free: %d bytes, %+v", len(b.Bytes()), c.Stats())
	}
	again, err := c.Buffer(t.Context(), 100*kib)
	if err != nil || again.Fresh() || c.Stats().Peak != 100*kib {
		t.Errorf("%v, fresh %v: the memory was not reused", err, again.Fresh())
	}
	again.Free()
	large, err := c.Buffer(t.Context(), 3000*kib)
	if err != nil || c.Stats().Used != 3000*kib {
		t.Errorf("%v, %+v: want a buffer above the budget, alone", err, c.Stats())
	}
	large.Free()
	if _, err := c.Buffer(t.Context(), maxSize); err == nil {
		t.Error("2^62 bytes were mapped")
	}
	atRest(t, c)
}

// Close fails those who wait, and leases stay valid until they are released.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 1000 * kib})
		mustAcquire(t, c, 1, 100*kib).Release()
		l := mustAcquire(t, c, 2, 800*kib)
		g := newGate()
		go func() {
			l, err := c.Acquire(t.Context(), item(3, 50*kib), g.load)
			if err != nil || !holds(l.Bytes(), 3) {
				t.Errorf("in flight at Close: %v, want it delivered", err)
			}
			l.Release()
		}()
		var waiter error
		synctest.Wait()
		go func() { _, waiter = c.Acquire(t.Context(), item(4, 500*kib), fill) }()
		synctest.Wait()
		c.Close()
		c.Close()
		close(g.open)
		synctest.Wait()
		if !errors.Is(waiter, rule.ErrClosed) {
			t.Errorf("who waited got %v, want ErrClosed", waiter)
		}
		if s := c.Stats(); s.Used != 800*kib || s.Leased != 800*kib {
			t.Errorf("%+v, want only the open lease charged", s)
		}
		if !holds(l.Bytes(), 2) {
			t.Error("the open lease lost its bytes")
		}
		if _, err := c.Acquire(t.Context(), item(2, 800*kib), fill); !errors.Is(err, rule.ErrClosed) {
			t.Errorf("a new request got %v, want ErrClosed", err)
		}
		if _, err := c.Prefetch(t.Context(), []Item[int]{item(5, 1)}, fill); !errors.Is(err, rule.ErrClosed) {
			t.Errorf("a new prefetch got %v, want ErrClosed", err)
		}
		if over := c.SetBudget(1 << 30); over != 800*kib {
			t.Errorf("SetBudget after Close: over by %d", over)
		}
		l.Release()
		atRest(t, c)
	})
}
