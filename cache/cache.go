// Package cache keeps decoded outputs within a budget of bytes. It knows keys,
// sizes and a function that fills buffers; nothing of tensors.
//
// One account, the ledger, holds everything: leased, idle and in-flight entries,
// scratch buffers, and free memory kept for reuse. Bytes are charged before they
// are decoded into, by the capacity of the region they come from. Who finds no
// room waits in one first-in first-out line and holds nothing meanwhile: each
// waiter is an attempt that either pins all its hits and reserves all its misses
// or changes nothing, and that whoever frees bytes makes on its behalf. Nobody
// overtakes, so small requests do not starve large ones; and while somebody
// waits, what becomes idle goes to the head of the line. The price is that a
// goroutine which holds a lease and waits for another may wait forever under a
// tight budget; AcquireMany exists so that nobody needs to.
//
// One lock guards the account, the entries, the order of eviction and the lists
// of free memory. It is never held while decoding, mapping, unmapping or logging.
package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"nibble/concurrency"
	"nibble/internal/invariants"
	"nibble/internal/rule"
)

// Item names one output. Two requests for one key must agree on its size.
type Item[K comparable] struct {
	Key  K
	Size int64 // bytes of decoded output

	// Waits says that loading the item may wait for something, such as a disk:
	// it is left to a goroutine of its own (see Options.Here).
	Waits bool

	// Fresh is set by the cache for the Loader: the pages of this item's
	// buffer have never been touched, and Populate would help.
	Fresh bool
}

// Options configure a Cache. The zero value keeps nothing.
type Options struct {
	// Budget is the number of bytes that all outputs and buffers may take
	// together. Below 1 nothing is kept, and one output exists at a time.
	Budget int64
	// Policy is the order of eviction; default LRU.
	Policy Policy
	// FailWhenFull makes requests that would wait for bytes fail with
	// rule.ErrBudget instead. Waiting for a decode in flight is not affected, nor
	// is waiting for bytes that only Prefetch has.
	FailWhenFull bool
	// Strict makes a single output above the budget fail with rule.ErrBudget.
	// Otherwise it is let in once it is alone, and unmapped on release.
	Strict bool
	// Here is how many bytes of output a request decodes on its own goroutine:
	// what it misses, if that is no more together and none of it Waits. Handing
	// it over, and back, takes up to 30 µs. Its context ends such a decode as
	// soon as the Loader looks at it, unless others wait for it by then: the
	// request stays for them. 0 means none.
	Here int64
	// Slow is how long a request waits for bytes before the open leases are
	// logged, once for each request; 0 means 5 s, negative never.
	Slow time.Duration
	// Log takes messages, one line each, lower case; nil drops them. It may be
	// called from several goroutines.
	Log func(msg string)
}

// Cache keeps outputs of type []byte by key. It is safe for concurrent use.
// Keys should be small values: they are compared and hashed on every hit.
type Cache[K comparable] struct {
	opts  Options
	stale atomic.Uint64 // releases of leases that were released before

	mu      sync.Mutex
	closed  bool
	ledger  ledger
	arena   arena
	entries map[K]*entry[K]
	rank    ranking[K]
	batches map[*batch[K]]struct{} // not done yet
	line    line[K]                // requests that wait for bytes
	slots   *slot                  // free ones
	stats   Stats                  // counters only
	open    map[*slot]*entry[K]    // leases, under -tags invariants

	// Left by the holder of the lock for unlock.
	gone    []*region
	settled []*request[K]
}

// New returns an empty cache. It holds no memory until it is used; Close gives
// back what it then holds.
func New[K comparable](o Options) *Cache[K] {
	if o.Slow == 0 {
		o.Slow = 5 * time.Second
	}
	c := &Cache[K]{
		opts:    o,
		ledger:  ledger{budget: clampBudget(o.Budget)},
		arena:   arena{slabs: slabs{}},
		entries: map[K]*entry[K]{},
		rank:    newRanking[K](o.Policy),
		batches: map[*batch[K]]struct{}{},
	}
	c.rank.resize(c.ledger.budget)
	if invariants.Enabled {
		c.open = map[*slot]*entry[K]{}
	}
	return c
}

// clampBudget keeps a budget between nothing and less than maxSize.
func clampBudget(n int64) int64 { return min(max(n, 0), maxSize-1) }

// TryAcquire leases the output of k if it is in the cache, without waiting. It
// does not allocate. A hit is counted, a miss is not.
func (c *Cache[K]) TryAcquire(k K) (Lease, bool) {
	c.mu.Lock()
	e := c.entries[k]
	if e == nil || !e.ready || c.closed {
		c.mu.Unlock()
		return Lease{}, false
	}
	c.pin(e)
	if !e.dropped {
		c.rank.access(k, e.size)
	}
	c.count(e, &c.stats.Hits)
	l := c.leaseOf(e)
	c.mu.Unlock()
	return l, true
}

// Borrow is TryAcquire for the owner of the cache rather than its user: it is
// neither counted nor told to the policy.
func (c *Cache[K]) Borrow(k K) (Lease, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[k]
	if e == nil || !e.ready || e.dropped || c.closed {
		return Lease{}, false
	}
	c.pin(e)
	return c.leaseOf(e), true
}

// count books one acquisition of e.
func (c *Cache[K]) count(e *entry[K], kind *int64) {
	e.ahead = false
	*kind++
	c.stats.BytesAcquired += e.size
}

// unlock releases the lock and does what must not be done under it: first the
// unmapping, then waking those who may map in its place.
func (c *Cache[K]) unlock() {
	c.ledger.check()
	if c.gone == nil && c.settled == nil {
		c.mu.Unlock()
		return
	}
	gone, settled := c.gone, c.settled
	c.gone, c.settled = nil, nil
	c.mu.Unlock()
	for _, r := range gone {
		r.unmap()
	}
	for _, r := range settled {
		close(r.done)
	}
}

// free takes back a block that no holder is charged for any more.
func (c *Cache[K]) free(b *block) {
	if r := c.arena.put(b); r != nil {
		c.discard(r)
	}
}

// discard returns a region to the system.
func (c *Cache[K]) discard(r *region) {
	c.ledger.credit(r.capacity)
	c.gone = append(c.gone, r)
}

// settle brings the cache back under its budget as far as nobody holds the
// bytes, and serves those who wait. It follows everything that frees bytes.
func (c *Cache[K]) settle() {
	for c.ledger.used > c.ledger.budget {
		if r := c.arena.trim(); r != nil {
			c.discard(r)
		} else if !c.evict(nil) {
			break
		}
	}
	c.serve()
}

// SetBudget changes the budget. It never waits: it unmaps free memory, evicts
// idle entries, and returns by how many bytes what is in use still exceeds the
// new budget; releases bring that down. Waiting requests are judged anew.
func (c *Cache[K]) SetBudget(n int64) (over int64) {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return c.ledger.used
	}
	c.ledger.budget = clampBudget(n)
	c.rank.resize(c.ledger.budget)
	if n <= 0 {
		for c.evict(nil) {
		}
	}
	c.settle()
	return max(0, c.ledger.used-c.ledger.budget)
}

// Drop forgets the outputs whose keys match: idle ones now, others when their
// last lease is released. Decodes that were only a prefetch are cancelled. No
// reference to an idle key is left behind. match is called under the lock and
// must not use the cache.
func (c *Cache[K]) Drop(match func(K) bool) {
	c.mu.Lock()
	defer c.unlock()
	for e := range c.matching(match) {
		e.dropped = true
		if e.ready && e.pins == 0 {
			c.drop(e)
		}
	}
	c.rank.forget(match)
	for b := range c.batches {
		if b.ahead && b.waiters == 0 && b.all(match) {
			c.abandon(b)
		}
	}
	c.settle()
}

// matching yields the entries whose keys match.
func (c *Cache[K]) matching(match func(K) bool) func(func(*entry[K]) bool) {
	return func(yield func(*entry[K]) bool) {
		for k, e := range c.entries {
			if match(k) && !yield(e) {
				return
			}
		}
	}
}

// Wait returns when no output whose key matches is being decoded, including
// decodes that everybody has left, or with the error of ctx once that is done.
// It does not keep new decodes from starting. match must not use the cache.
func (c *Cache[K]) Wait(ctx context.Context, match func(K) bool) error {
	c.mu.Lock()
	var running []*batch[K]
	for b := range c.batches {
		if b.any(match) {
			running = append(running, b)
		}
	}
	c.mu.Unlock()
	for _, b := range running {
		select {
		case <-b.done:
		case <-ctx.Done():
			return concurrency.ContextErr(ctx)
		}
	}
	return nil
}

// Leases returns the keys of the open leases that match, one for each lease, in
// no order. match must not use the cache.
func (c *Cache[K]) Leases(match func(K) bool) []K {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []K
	for e := range c.matching(match) {
		for range e.leases {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// Close drops everything that is idle and returns free memory to the system.
// Requests from now on, and those that wait for bytes, fail with
// rule.ErrClosed. Open leases and buffers stay valid until they are released;
// decodes in flight are delivered. Closing again does nothing.
func (c *Cache[K]) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.ledger.budget = 0
	for c.evict(nil) {
	}
	c.settle()
	var report string
	if invariants.Enabled {
		report = c.openStacks()
	}
	c.unlock()
	if report != "" {
		c.log(report)
	}
}

// openStacks lists the open leases and where they were taken.
func (c *Cache[K]) openStacks() string {
	var report string
	for s, e := range c.open {
		report += fmt.Sprintf("lease of %v is open, taken at:\n%s\n", e.key, s.stack)
	}
	return report
}

func (c *Cache[K]) log(msg string) {
	if c.opts.Log != nil {
		c.opts.Log(msg)
	}
}

// errClosed is what requests to a closed cache return.
var errClosed = fmt.Errorf("cache: %w", rule.ErrClosed)
