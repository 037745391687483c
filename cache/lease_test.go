package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"nibble/internal/invariants"
)

func TestReleaseTwice(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	l := mustAcquire(t, c, 1, 1000)
	other := mustAcquire(t, c, 1, 1000)
	if l == other {
		t.Error("two leases of one entry are equal")
	}
	if !l.Valid() || !l.Release() {
		t.Error("a fresh lease is not valid")
	}
	if l.Valid() || l.Release() || l.Bytes() != nil {
		t.Error("a released lease still works")
	}
	if !other.Valid() || !holds(other.Bytes(), 1) {
		t.Error("releasing one lease twice ended another lease of the entry")
	}
	// The slot is reused: the old lease must not reach into the new one.
	again := mustAcquire(t, c, 2, 1000)
	if again.slot != l.slot {
		t.Fatal("the slot is not reused; the test needs that")
	}
	if l.Release() || l.Bytes() != nil || !again.Valid() {
		t.Error("an old lease reaches into the new one in its slot")
	}
	other.Release()
	again.Release()
	if n := c.Stats().StaleReleases; n != 2 {
		t.Errorf("%d stale releases are counted, want 2", n)
	}
	atRest(t, c)
}

func TestZeroLease(t *testing.T) {
	var l Lease
	if l.Valid() || l.Release() || l.Bytes() != nil {
		t.Error("the zero lease does something")
	}
}

// Of many releases of one lease exactly one counts, and reading beside them is
// no race.
func TestReleaseRace(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	for range 200 {
		l := mustAcquire(t, c, 1, 100)
		var won atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				l.Bytes()
				if l.Release() {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d releases of one lease won", won.Load())
		}
	}
	atRest(t, c)
}

func TestHitAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("paranoid builds record stacks")
	}
	for _, p := range policies() {
		c := New[int](Options{Budget: 1 << 20, Policy: p})
		for key := range 10 {
			mustAcquire(t, c, key, 100).Release()
		}
		n := testing.AllocsPerRun(1000, func() {
			l, ok := c.TryAcquire(3)
			if !ok {
				t.Fatal("no hit")
			}
			l.Release()
		})
		if n != 0 {
			t.Errorf("%v: a hit and its release allocate %v times", p, n)
		}
	}
}

// policies lists all of them.
func policies() []Policy {
	var all []Policy
	for p := range policyNames {
		all = append(all, Policy(p))
	}
	return all
}

func TestBuffersAreAligned(t *testing.T) {
	c := New[int](Options{Budget: 32 << 20})
	for _, size := range []int64{1, 63, 64, 65, 1000, 64<<10 - 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		l := mustAcquire(t, c, int(size), size)
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(l.Bytes()))); p%align != 0 {
			t.Errorf("%d bytes start at %#x", size, p)
		}
		l.Release()
	}
	atRest(t, c)
}

// Fresh is true for the first use of a region and false from then on.
func TestFresh(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	var fresh []bool
	load := func(ctx context.Context, items []Item[int], bufs [][]byte) error {
		for i, it := range items {
			fresh = append(fresh, it.Fresh)
			if it.Fresh {
				Populate(bufs[i])
			}
		}
		return fill(ctx, items, bufs)
	}
	for _, key := range []int{1, 2} {
		l, err := c.Acquire(t.Context(), item(key, 1<<20), load)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
	if len(fresh) != 2 || !fresh[0] || fresh[1] {
		t.Errorf("fresh is %v for a new and a reused region", fresh)
	}
	if s := c.Stats(); s.Peak != 1<<20 {
		t.Errorf("the peak is %d: the region was not reused", s.Peak)
	}
	atRest(t, c)
}

func TestEmptyOutput(t *testing.T) {
	for _, budget := range []int64{0, 1 << 20} {
		c := New[int](Options{Budget: budget})
		l := mustAcquire(t, c, 1, 0)
		if b := l.Bytes(); b == nil || len(b) != 0 {
			t.Errorf("an empty output has bytes %v, want empty and not nil", b)
		}
		l.Release()
		if n := c.Stats().Entries; n != int(min(budget, 1)) {
			t.Errorf("budget %d: %d entries are kept", budget, n)
		}
		c.SetBudget(0)
		if n := c.Stats().Entries; n != 0 {
			t.Errorf("without a budget %d entries are kept", n)
		}
		atRest(t, c)
	}
}
