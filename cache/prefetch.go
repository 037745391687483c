package cache

import (
	"context"

	"nibble/concurrency"
)

// Prefetch starts to decode those of items that are neither in the cache nor in
// flight, in order, for as long as there is room, and returns how many it
// started. They become idle entries; a request that comes earlier joins. Room is
// what is free and what the policy ranks below the item, but never another
// prefetched output that waits for its first use; while requests wait for bytes
// there is none. Items that are idle already are kept as if just released.
//
// Prefetch itself never waits. load runs on one goroutine of its own, and is
// cancelled when ctx is done unless a request waits for it. Its error is
// dropped: a request for the item will meet it again.
func (c *Cache[K]) Prefetch(ctx context.Context, items []Item[K], load Loader[K]) (started int, err error) {
	if err := concurrency.ContextErr(ctx); err != nil {
		return 0, err
	}
	distinct, _ := unique(items)
	r := &request[K]{ctx: ctx, items: distinct, load: load}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, errClosed
	}
	if c.line.Len() == 0 {
		c.reserveAhead(r)
	}
	c.unlock()
	if r.batch == nil {
		return 0, nil
	}
	stop := context.AfterFunc(ctx, func() { c.cancelAhead(r.batch) })
	go func() {
		defer stop()
		r.batch.run()
	}()
	return len(r.batch.entries), nil
}

// reserveAhead makes r's batch for the first of the missing items.
func (c *Cache[K]) reserveAhead(r *request[K]) {
	c.pinPresent(r) // so that none makes room for another
	for _, e := range r.entries {
		if e != nil && e.ready && !e.dropped {
			c.rank.idle(e.key, e.size)
			e.ranked = true
		}
	}
	var items []Item[K]
	var blocks []*block
	for i, it := range r.items {
		if r.entries[i] != nil {
			continue
		}
		size := []int64{it.Size}
		if demandOf(size).alone(c.ledger.budget) > c.ledger.budget {
			break
		}
		b, ok := c.reserve(size, true, func(e *entry[K]) bool {
			return !e.ahead && c.rank.below(e.key, it.Key)
		})
		if !ok {
			break
		}
		items, blocks = append(items, it), append(blocks, b[0])
	}
	c.unpinPresent(r, false)
	if items != nil {
		r.batch = c.newBatch(r.ctx, items, blocks, r.load)
		r.batch.ahead = true
	}
}

// cancelAhead ends the prefetcher's interest in b.
func (c *Cache[K]) cancelAhead(b *batch[K]) {
	c.mu.Lock()
	defer c.unlock()
	if b.waiters == 0 && !b.finished() {
		c.abandon(b)
	}
	b.ahead = false
}
