package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"nibble/internal/rule"
)

func prefetch(t *testing.T, c *Cache[int], load Loader[int], keys ...int) int {
	t.Helper()
	var items []Item[int]
	for _, k := range keys {
		items = append(items, item(k, 100*kib))
	}
	n, err := c.Prefetch(t.Context(), items, load)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// resident lists which of the first n keys are in the cache, without touching.
func resident(c *Cache[int], n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []int
	for k := range n {
		if e := c.entries[k]; e != nil && e.ready {
			keys = append(keys, k)
		}
	}
	return fmt.Sprint(keys)
}

func everything(int) bool { return true }

func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 500 * kib})
		for key := range 4 {
			mustAcquire(t, c, key, 100*kib).Release()
		}
		g := newGate()
		// 0 is there; 4 fits; 5 and 6 take the places of 1 and 2, the oldest
		// now that 0 is wanted soon.
		if n := prefetch(t, c, g.load, 0, 4, 5, 5, 6); n != 3 {
			t.Errorf("%d were started, want 3", n)
		}
		var joined Lease
		go func() {
			var err error
			if joined, err = c.Acquire(t.Context(), item(5, 100*kib), fill); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if s := c.Stats(); s.InFlight != 300*kib || s.Leased != 0 {
			t.Errorf("while prefetching: %+v", s)
		}
		close(g.open)
		synctest.Wait()
		if s := c.Stats(); s.Joined != 1 || s.Prefetched != 3 || s.Idle != 400*kib || s.Leased != 100*kib {
			t.Errorf("%+v, want 5 joined and leased, the others idle", s)
		}
		if got := resident(c, 10); got != "[0 3 4 5 6]" {
			t.Errorf("%s are in the cache, want [0 3 4 5 6]", got)
		}
		joined.Release()
		atRest(t, c)
	})
}

// A prefetch never takes the place of another one that waits for its first use,
// nor of a lease, and never waits.
func TestPrefetchYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 300 * kib})
		l := mustAcquire(t, c, 0, 100*kib)
		if n := prefetch(t, c, fill, 1, 2, 3); n != 2 {
			t.Errorf("%d were started, want the 2 that fit", n)
		}
		synctest.Wait()
		if n := prefetch(t, c, fill, 4); n != 0 {
			t.Error("a prefetch took the place of one that waits for its first use")
		}
		mustAcquire(t, c, 1, 100*kib).Release()
		if n := prefetch(t, c, fill, 4); n != 0 {
			t.Error("a prefetch took the place of 2, which is older than 1 but not used yet")
		}
		mustAcquire(t, c, 2, 100*kib).Release()
		if n := prefetch(t, c, fill, 4); n != 1 {
			t.Error("a prefetch did not take the place of a used output")
		}
		synctest.Wait()
		if n := prefetch(t, c, fill, 5, 6); n != 1 {
			t.Errorf("%d were started, want 1: in the place of 2", n)
		}
		synctest.Wait()
		if n, err := c.Prefetch(t.Context(), []Item[int]{item(7, 301*kib)}, fill); n != 0 || err != nil {
			t.Errorf("an output above the budget: %d, %v", n, err)
		}
		l.Release()
		atRest(t, c)
	})
}

// While a request waits for bytes there is no room for prefetch.
func TestPrefetchStandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 500 * kib})
		l := mustAcquire(t, c, 0, 300*kib)
		go func() { mustAcquire(t, c, 1, 400*kib).Release() }()
		synctest.Wait()
		if n := prefetch(t, c, fill, 2); n != 0 {
			t.Error("a prefetch overtook a request")
		}
		l.Release()
		synctest.Wait()
		atRest(t, c)
	})
}

// The end of its context cancels a prefetch, unless a request has joined.
func TestPrefetchCancel(t *testing.T) {
	for _, joins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := New[int](Options{Budget: 500 * kib})
			g := newGate()
			ctx, cancel := context.WithCancel(t.Context())
			if n, err := c.Prefetch(ctx, []Item[int]{item(1, 1000), item(2, 1000)}, g.load); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
			if joins {
				go func() { mustAcquire(t, c, 1, 1000).Release() }()
				synctest.Wait()
			}
			cancel()
			synctest.Wait()
			if g.stopped.Load() == joins {
				t.Errorf("joined %v, decode cancelled %v", joins, g.stopped.Load())
			}
			close(g.open)
			synctest.Wait()
			if n := c.Stats().Entries; n != map[bool]int{false: 0, true: 2}[joins] {
				t.Errorf("joined %v: %d entries", joins, n)
			}
			atRest(t, c)
		})
	}
}

func TestPrefetchErrorIsDropped(t *testing.T) {
	c := New[int](Options{Budget: 500 * kib})
	g := newGate()
	g.err = errors.New("bad")
	close(g.open)
	prefetch(t, c, g.load, 1)
	c.Wait(t.Context(), everything)
	mustAcquire(t, c, 1, 100*kib).Release()
	atRest(t, c)
}

// Drop takes what is idle now, what is leased with its last lease, what is in
// flight when it is released, and cancels what is only prefetched.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 900 * kib})
		mustAcquire(t, c, 1, 100*kib).Release()
		mustAcquire(t, c, 2, 100*kib).Release()
		l := mustAcquire(t, c, 3, 100*kib)
		g, ahead := newGate(), newGate()
		go func() {
			l, err := c.Acquire(t.Context(), item(4, 100*kib), g.load)
			if err != nil || !holds(l.Bytes(), 4) {
				t.Errorf("in flight at Drop: %v", err)
			}
			l.Release()
		}()
		prefetch(t, c, ahead.load, 5)
		synctest.Wait()
		c.Drop(func(k int) bool { return k != 2 })
		synctest.Wait()
		if !ahead.stopped.Load() {
			t.Error("a prefetch of a dropped output goes on")
		}
		if got := resident(c, 10); got != "[2 3]" {
			t.Errorf("%s are in the cache, want [2 3]: 3 is leased", got)
		}
		close(g.open)
		l.Release()
		synctest.Wait()
		if got := resident(c, 10); got != "[2]" {
			t.Errorf("%s are in the cache, want [2]", got)
		}
		atRest(t, c)
	})
}

// Wait waits for decodes that everybody has left, too.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 900 * kib})
		ctx, cancel := context.WithCancel(t.Context())
		var over atomic.Bool
		go func() {
			_, _ = c.Acquire(ctx, item(1, 1000), func(ctx context.Context, _ []Item[int], _ [][]byte) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				over.Store(true)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		c.Wait(context.Background(), func(k int) bool { return k != 1 })
		if over.Load() {
			t.Error("Wait waited for a key that does not match")
		}
		c.Wait(t.Context(), everything)
		if !over.Load() {
			t.Error("Wait returned while the abandoned decode was running")
		}
		atRest(t, c)
	})
}

// After Drop no reference to a key is left, so what the key points to is freed.
func TestDropLeavesNoReference(t *testing.T) {
	for _, p := range policies() {
		type store struct{ _ [1024]byte }
		c := New[*store](Options{Budget: 300 * kib, Policy: p})
		load := func(context.Context, []Item[*store], [][]byte) error { return nil }
		var weaks []weak.Pointer[store]
		for range 3 { // more passes than keys fit, for what policies remember
			for range 10 {
				s := new(store)
				weaks = append(weaks, weak.Make(s))
				for range 3 {
					l, err := c.Acquire(t.Context(), Item[*store]{Key: s, Size: 100 * kib}, load)
					if err != nil {
						t.Fatal(err)
					}
					l.Release()
				}
			}
		}
		all := func(*store) bool { return true }
		weaks = append(weaks, dropLeased(t, c, load, all))
		c.Wait(context.Background(), all)
		for range 3 {
			runtime.GC()
		}
		for i, w := range weaks {
			if w.Value() != nil {
				t.Errorf("%v: key %d is still referred to", p, i)
			}
		}
		c.Close()
	}
}

// dropLeased drops an output while it is leased, and asks for it afterwards.
func dropLeased[K any](t *testing.T, c *Cache[*K], load Loader[*K], all func(*K) bool) weak.Pointer[K] {
	it := Item[*K]{Key: new(K), Size: 100 * kib}
	first, err := c.Acquire(t.Context(), it, load)
	if err != nil {
		t.Fatal(err)
	}
	c.Drop(all)
	second, ok := c.TryAcquire(it.Key)
	if !ok {
		t.Error("a dropped output is gone although it is leased")
	}
	more, _, err := c.AcquireMany(t.Context(), []Item[*K]{it, it}, load)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(more, first, second) {
		l.Release()
	}
	if n := c.Stats().Entries; n != 0 {
		t.Errorf("%d dropped outputs outlive their leases", n)
	}
	return weak.Make(it.Key)
}

// What is decoded ahead is a hint: where requests are not to wait for bytes, it
// must not make one fail that would have had them without it.
func TestPrefetchFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Options{Budget: 128 * kib, FailWhenFull: true})
		g := newGate()
		if n, err := c.Prefetch(t.Context(), []Item[int]{item(1, 100*kib)}, g.load); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		var l Lease
		var err error
		go func() { l, err = c.Acquire(t.Context(), item(2, 100*kib), fill) }()
		synctest.Wait()
		if err != nil {
			t.Errorf("while another is decoded ahead: %v", err)
		}
		close(g.open)
		synctest.Wait()
		if err != nil || !holds(l.Bytes(), 2) {
			t.Errorf("once it was: %v", err)
		}
		// A lease is another matter, before and while something is decoded ahead.
		if _, err := c.Acquire(t.Context(), item(3, 100*kib), fill); !errors.Is(err, rule.ErrBudget) {
			t.Errorf("beside a lease: %v, want ErrBudget", err)
		}
		g = newGate()
		if n, err := c.Prefetch(t.Context(), []Item[int]{item(4, 10)}, g.load); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		if _, err = c.Acquire(t.Context(), item(3, 100*kib), fill); !errors.Is(err, rule.ErrBudget) {
			t.Errorf("beside a lease, which is in the way, and what is ahead, which is not: %v, want ErrBudget", err)
		}
		close(g.open)
		synctest.Wait()
		l.Release()
		atRest(t, c)
	})
}
