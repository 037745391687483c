package cache

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"time"

	"nibble/concurrency"
	"nibble/internal/rule"
)

// request is one call that needs bytes: outputs, or a scratch buffer. It is
// granted whole or not at all.
type request[K comparable] struct {
	ctx     context.Context // for its values; the batch outlives it
	items   []Item[K]       // distinct keys
	load    Loader[K]
	scratch int64  // size of the buffer when there are no items
	want    demand // of all items, or of the buffer

	done  chan struct{} // closed when the request was settled in the line
	place *list.Element // in the line; nil when not waiting

	// The outcome.
	err     error
	entries []*entry[K] // of items, pinned
	kinds   []kind      // of entries
	batch   *batch[K]   // decodes the misses; nil when there are none
	waits   []*batch[K] // that, and the batches that decode joined entries
	buffer  *block
}

// kind is how a request came by an entry.
type kind uint8

const (
	hit    kind = iota // was ready
	joined             // was in flight
	miss               // is decoded for this request
	taken              // the request's pin has become a lease
)

// line is the first-in first-out line of waiting requests.
type line[K comparable] struct{ list.List }

func (l *line[K]) head() *request[K] {
	if e := l.Front(); e != nil {
		return e.Value.(*request[K])
	}
	return nil
}

// submit makes the first attempt for r and puts it in line when that must wait.
// It returns when r is settled or its context is done; then r.err says so, and
// r holds nothing.
func (c *Cache[K]) submit(ctx context.Context, r *request[K]) error {
	r.want = demandOf(r.sizes())
	c.mu.Lock()
	if c.attempt(r, c.line.Len() == 0) {
		c.unlock()
		return r.err
	}
	if c.refuse(r) {
		c.unlock()
		return r.err
	}
	c.stats.Waits++
	r.done = make(chan struct{})
	r.place = c.line.PushBack(r)
	c.unlock()
	return c.await(ctx, r)
}

// refuse settles r, for which there is no room, if requests are not to wait for
// bytes. What Prefetch decodes is no reason to refuse: it is a hint, it is over
// soon, and then its bytes can be had, if they are enough.
func (c *Cache[K]) refuse(r *request[K]) bool {
	if !c.opts.FailWhenFull {
		return false
	}
	var ahead, missing int64
	for b := range c.batches {
		if b.ahead && b.waiters == 0 {
			for _, e := range b.entries {
				ahead += e.block.capacity
			}
		}
	}
	for _, it := range r.items {
		if c.entries[it.Key] == nil {
			missing += it.Size
		}
	}
	if ahead > 0 && c.ledger.held()-ahead+max(missing, r.scratch) <= c.ledger.budget {
		return false
	}
	r.err = fmt.Errorf("%w: no room for %d bytes now", rule.ErrBudget, r.bytes())
	return true
}

// await waits until r is settled by others.
func (c *Cache[K]) await(ctx context.Context, r *request[K]) error {
	var slow <-chan time.Time
	if c.opts.Slow > 0 && c.opts.Log != nil {
		t := time.NewTimer(c.opts.Slow)
		defer t.Stop()
		slow = t.C
	}
	for {
		select {
		case <-r.done:
			return r.err
		case <-slow:
			c.logSlow(r)
		case <-ctx.Done():
			c.mu.Lock()
			if r.place == nil {
				// Settled at the same moment: the caller finds out that
				// its context is done, and undoes the grant.
				c.unlock()
				<-r.done
				return r.err
			}
			c.line.Remove(r.place)
			c.serve()
			c.unlock()
			return concurrency.ContextErr(ctx)
		}
	}
}

// serve settles requests from the head of the line for as long as it can.
func (c *Cache[K]) serve() {
	for r := c.line.head(); r != nil; r = c.line.head() {
		if !c.attempt(r, true) && !c.refuse(r) {
			return
		}
		c.line.Remove(r.place)
		r.place = nil
		c.settled = append(c.settled, r)
	}
}

// attempt settles r, which is granted or has failed, and reports true; or it
// reports false, and r, which then holds nothing, has to wait. first says that
// nobody is ahead of r; otherwise it may not take bytes. A first attempt that
// fails has evicted what was idle: those bytes are r's as soon as there are
// enough, and a hit in between could put that off forever.
func (c *Cache[K]) attempt(r *request[K], first bool) bool {
	if c.closed {
		r.err = errClosed
		return true
	}
	if r.err = c.possible(r); r.err != nil {
		return true
	}
	quiet := c.ledger.held() == 0
	sizes := c.pinPresent(r)
	if len(sizes) == 0 {
		c.grant(r, nil)
		return true
	}
	if !first {
		c.unpinPresent(r, false)
		return false
	}
	blocks, ok := c.reserve(sizes, c.opts.FailWhenFull, nil)
	if ok {
		c.grant(r, blocks)
		return true
	}
	c.unpinPresent(r, quiet)
	if quiet && len(sizes) < len(r.items) {
		// Nobody else holds a byte, so waiting would not help: the hits sit
		// in regions with slack, or in slabs beside cells of others. Without
		// them the request fits, as possible() has found.
		return c.attempt(r, true)
	}
	return false
}

// possible checks that the cache could ever grant r: a single output or buffer
// above the budget unless Strict, several only within it.
func (c *Cache[K]) possible(r *request[K]) error {
	need := r.want.alone(c.ledger.budget)
	if need <= c.ledger.budget || len(r.items) <= 1 && !c.opts.Strict {
		return nil
	}
	return fmt.Errorf("%w: %d bytes needed at once, the budget is %d", rule.ErrBudget, need, c.ledger.budget)
}

// sizes lists what r asks for.
func (r *request[K]) sizes() []int64 {
	if len(r.items) == 0 {
		return []int64{r.scratch}
	}
	sizes := make([]int64, len(r.items))
	for i, it := range r.items {
		sizes[i] = it.Size
	}
	return sizes
}

// bytes is the number of bytes r asks for.
func (r *request[K]) bytes() int64 {
	n := r.scratch
	for _, it := range r.items {
		n = addSizes(n, it.Size)
	}
	return n
}

// pinPresent pins those outputs of r that are in the cache or in flight, and
// returns the sizes of the others.
func (c *Cache[K]) pinPresent(r *request[K]) []int64 {
	if len(r.items) == 0 {
		return []int64{r.scratch}
	}
	r.entries = make([]*entry[K], len(r.items))
	var missing []int64
	for i, it := range r.items {
		if e := c.entries[it.Key]; e != nil {
			c.pin(e)
			r.entries[i] = e
		} else {
			missing = append(missing, it.Size)
		}
	}
	return missing
}

// unpinPresent undoes pinPresent. With drop it also drops what is then idle.
func (c *Cache[K]) unpinPresent(r *request[K], drop bool) {
	for _, e := range r.entries {
		if e == nil {
			continue
		}
		e.pins--
		if e.pins > 0 || !e.ready {
			continue
		}
		c.ledger.leased -= e.block.capacity
		c.ledger.idle += e.block.capacity
		switch {
		case drop:
			c.stats.Evictions++
			c.remove(e, evicted)
		case !e.ranked:
			c.rest(e) // evict met it while it was pinned
		}
	}
	r.entries = nil
}

// reserve takes blocks for sizes and charges them as in flight; it evicts idle
// entries for it, asking may first where that is not nil. A single size above
// the budget is let in when nothing else is held. With whole, nothing is evicted
// unless that is sure to suffice.
func (c *Cache[K]) reserve(sizes []int64, whole bool, may func(*entry[K]) bool) ([]*block, bool) {
	l := &c.ledger
	d := demandOf(sizes)
	if len(sizes) == 1 && d.alone(l.budget) > l.budget {
		return c.reserveAlone(sizes[0], whole)
	}
	if whole && l.held()+c.arena.need(d, l.budget) > l.budget {
		return nil, false
	}
	for c.occupied()+c.arena.need(d, l.budget) > l.budget {
		if !c.evict(may) {
			return nil, false
		}
	}
	spare := l.budget - c.occupied() - c.arena.need(d, l.budget)
	blocks, added := c.arena.take(sizes, spare, l.budget)
	for l.used+added > l.budget {
		c.discard(c.arena.trim())
	}
	l.charge(added)
	for _, b := range blocks {
		l.inFlight += b.capacity
	}
	return blocks, true
}

// occupied is the capacity of the regions that are not free.
func (c *Cache[K]) occupied() int64 { return c.ledger.used - c.arena.freeBytes }

// reserveAlone takes a private block of exactly n bytes once nothing else is
// charged.
func (c *Cache[K]) reserveAlone(n int64, whole bool) ([]*block, bool) {
	if whole && c.ledger.held() > 0 {
		return nil, false
	}
	for c.evict(nil) {
	}
	if c.occupied() > 0 {
		return nil, false
	}
	for r := c.arena.trim(); r != nil; r = c.arena.trim() {
		c.discard(r)
	}
	c.stats.Oversize++
	c.ledger.charge(n)
	c.ledger.inFlight += n
	return []*block{{region: &region{capacity: n, private: true}, size: n, capacity: n}}, true
}

// logSlow names the open leases that r may be waiting for.
func (c *Cache[K]) logSlow(r *request[K]) {
	const most = 8
	keys := c.Leases(func(K) bool { return true })
	var b strings.Builder
	fmt.Fprintf(&b, "waited %v for %d bytes of the cache; open leases: %d", c.opts.Slow, r.bytes(), len(keys))
	for i, k := range keys {
		if i == most {
			b.WriteString(" …")
			break
		}
		fmt.Fprintf(&b, " %v", k)
	}
	c.log(b.String())
}
