package cache

import (
	"context"
	"testing"
)

// What an owner of the cache looks at does not show in the statistics.
func TestBorrow(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	defer c.Close()
	if _, ok := c.Borrow(1); ok {
		t.Error("borrowed what is not there")
	}
	load := func(_ context.Context, _ []Item[int], bufs [][]byte) error { bufs[0][0] = 9; return nil }
	l, err := c.Acquire(t.Context(), Item[int]{Key: 1, Size: 100}, load)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	before := c.Stats()
	b, ok := c.Borrow(1)
	if !ok || b.Bytes()[0] != 9 {
		t.Fatal("not borrowed")
	}
	if s := c.Stats(); s.Hits != before.Hits || s.BytesAcquired != before.BytesAcquired || s.Leased == 0 {
		t.Errorf("before %+v, with a loan %+v", before, s)
	}
	c.Drop(func(int) bool { return true })
	if _, ok := c.Borrow(1); ok {
		t.Error("borrowed what was dropped")
	}
	b.Release()
	if s := c.Stats(); s.Leased != 0 || s.Entries != 0 {
		t.Errorf("at rest: %+v", s)
	}
}
