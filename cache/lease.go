package cache

import (
	"runtime/debug"
	"sync/atomic"

	"nibble/internal/invariants"
)

// Lease keeps one entry in the cache. It is a small comparable value; copies
// are the same lease, and the zero Lease is one that was released.
//
// The bytes belong to the cache and are shared by all leases of the entry: they
// must not be written, and not be used after Release.
type Lease struct {
	slot *slot
	gen  uint64
}

// slot is where a lease lives. Slots are reused; the generation, which moves on
// with each release, tells old leases from the current one.
type slot struct {
	gen   atomic.Uint64
	bytes atomic.Pointer[[]byte]
	held  holder // nil while the slot is free
	stale *atomic.Uint64
	next  *slot // in the list of free slots

	stack []byte // where the lease was taken, under -tags invariants
}

// holder is what a lease holds on to: an entry.
type holder interface{ release(*slot) }

// Bytes returns the entry's bytes, aligned to 64; nil after Release. They are
// read-only and valid until Release.
func (l Lease) Bytes() []byte {
	if l.slot == nil {
		return nil
	}
	b := l.slot.bytes.Load()
	// The pointer is read first: if the generation is still ours afterwards,
	// the pointer was, too.
	if l.slot.gen.Load() != l.gen || b == nil {
		return nil
	}
	return *b
}

// Valid reports whether the lease has not been released.
func (l Lease) Valid() bool { return l.slot != nil && l.slot.gen.Load() == l.gen }

// Release ends the lease and reports whether it was this call that did. Calling
// it again, from any goroutine and through any copy, does nothing.
func (l Lease) Release() bool {
	if l.slot == nil {
		return false
	}
	if !l.slot.gen.CompareAndSwap(l.gen, l.gen+1) {
		l.slot.stale.Add(1)
		return false
	}
	l.slot.held.release(l.slot)
	return true
}

// leaseOf takes a slot for a new lease of e, whose pin it takes over.
func (c *Cache[K]) leaseOf(e *entry[K]) Lease {
	s := c.slots
	if s == nil {
		s = &slot{stale: &c.stale}
	} else {
		c.slots = s.next
		s.next = nil
	}
	s.held = e
	s.bytes.Store(&e.bytes)
	e.leases++
	if invariants.Enabled {
		s.stack = debug.Stack()
		c.open[s] = e
		e.seal()
	}
	return Lease{s, s.gen.Load()}
}

// release implements holder. The caller has won the slot's generation.
func (e *entry[K]) release(s *slot) {
	c := e.cache
	c.mu.Lock()
	s.held = nil
	s.bytes.Store(nil)
	s.next = c.slots
	c.slots = s
	e.leases--
	if invariants.Enabled {
		s.stack = nil
		delete(c.open, s)
		e.checkSeal()
	}
	c.unpin(e)
	c.unlock()
}
