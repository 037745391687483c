package cache

import (
	"context"
	"fmt"
	"testing"
)

// fill is the loader of these tests: each buffer holds its key, repeated.
func fill(_ context.Context, items []Item[int], bufs [][]byte) error {
	for i, it := range items {
		pattern(bufs[i], it.Key)
	}
	return nil
}

func pattern(b []byte, key int) {
	for i := range b {
		b[i] = byte(key + i%7)
	}
}

func holds(b []byte, key int) bool {
	for i := range b {
		if b[i] != byte(key+i%7) {
			return false
		}
	}
	return true
}

func item(key int, size int64) Item[int] { return Item[int]{Key: key, Size: size} }

func mustAcquire(t *testing.T, c *Cache[int], key int, size int64) Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), item(key, size), fill)
	if err != nil {
		t.Fatalf("acquire %d: %v", key, err)
	}
	if int64(len(l.Bytes())) != size || !holds(l.Bytes(), key) {
		t.Fatalf("lease of %d has the wrong bytes", key)
	}
	return l
}

// atRest checks that nothing is held any more and that the account is exact.
func atRest(t *testing.T, c *Cache[int]) {
	t.Helper()
	c.Wait(context.Background(), func(int) bool { return true })
	s := c.Stats()
	if s.Leased != 0 || s.InFlight != 0 || s.Scratch != 0 || s.Waiting != 0 {
		t.Errorf("at rest something is held: %+v", s)
	}
	if s.Used > s.Budget {
		t.Errorf("at rest %d bytes are charged, the budget is %d", s.Used, s.Budget)
	}
	if s.Used != s.Idle+s.ArenaFree {
		t.Errorf("used %d is not idle %d + free %d", s.Used, s.Idle, s.ArenaFree)
	}
	c.Close()
	if s := c.Stats(); s.Used != 0 || s.Entries != 0 {
		t.Errorf("after close %d bytes and %d entries are left", s.Used, s.Entries)
	}
}

func TestHitMissEvict(t *testing.T) {
	c := New[int](Options{Budget: 299 << 10})
	for key := range 3 {
		mustAcquire(t, c, key, 100<<10).Release()
	}
	mustAcquire(t, c, 1, 100<<10).Release()
	if s := c.Stats(); s.Misses != 3 || s.Hits != 1 || s.Evictions != 1 {
		t.Errorf("three outputs, room for two: %+v", s)
	}
	atRest(t, c)
}

// A hit and its release, with a key like the store's.
func BenchmarkHit(b *testing.B) {
	type key struct {
		store, tensor uintptr
		dtype         uint8
	}
	load := func(context.Context, []Item[key], [][]byte) error { return nil }
	for _, p := range policies() {
		b.Run(fmt.Sprintf("policy=%v", p), func(b *testing.B) {
			c := New[key](Options{Budget: 1 << 20, Policy: p})
			defer c.Close()
			for i := range uintptr(100) {
				l, err := c.Acquire(b.Context(), Item[key]{Key: key{1, i, 3}, Size: 100}, load)
				if err != nil {
					b.Fatal(err)
				}
				l.Release()
			}
			b.ReportAllocs()
			i := uintptr(0)
			for b.Loop() {
				l, ok := c.TryAcquire(key{1, i, 3})
				if !ok {
					b.Fatal("no hit")
				}
				l.Release()
				i = (i + 1) % 100
			}
		})
	}
}

// An output that is decoded in no time, released and evicted by the next.
func BenchmarkMiss(b *testing.B) {
	c := New[int](Options{Budget: 1 << 20})
	defer c.Close()
	load := func(context.Context, []Item[int], [][]byte) error { return nil }
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l, err := c.Acquire(b.Context(), item(i, 100<<10), load)
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
		i++
	}
}
