package cache

import (
	"context"
	"fmt"

	"nibble/concurrency"
)

// Acquire leases the output of it.Key: from the cache, by joining a decode in
// flight, or by calling load. It waits for bytes as the package describes; a
// done context returns its error (see concurrency.ContextErr), at once or, where
// Options.Here lets it decode itself, when load returns; a decode that others
// wait for goes on. An error of load is returned as it is, and not remembered.
func (c *Cache[K]) Acquire(ctx context.Context, it Item[K], load Loader[K]) (Lease, error) {
	if err := concurrency.ContextErr(ctx); err != nil {
		return Lease{}, err
	}
	if l, ok := c.TryAcquire(it.Key); ok {
		return l, nil
	}
	leases, _, err := c.acquire(ctx, []Item[K]{it}, load)
	if err != nil {
		return Lease{}, err
	}
	return leases[0], nil
}

// AcquireMany leases all items or none: their bytes are reserved in one step,
// so that a request never waits while it holds a part. What is missing is
// decoded by one call of load. leases are in the order of items, in which a key
// may come more than once; hits counts those that did not have to be decoded
// for this request. More bytes than the budget are rule.ErrBudget, unless all
// items are one key.
func (c *Cache[K]) AcquireMany(ctx context.Context, items []Item[K], load Loader[K]) (leases []Lease, hits int, err error) {
	if err := concurrency.ContextErr(ctx); err != nil {
		return nil, 0, err
	}
	return c.acquire(ctx, items, load)
}

func (c *Cache[K]) acquire(ctx context.Context, items []Item[K], load Loader[K]) ([]Lease, int, error) {
	if len(items) == 0 {
		return nil, 0, nil
	}
	distinct, index := unique(items)
	for {
		r := &request[K]{ctx: ctx, items: distinct, load: load}
		if err := c.submit(ctx, r); err != nil {
			return nil, 0, err
		}
		again, err := c.collect(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		if !again {
			leases, hits := c.leaseAll(r, index)
			return leases, hits, nil
		}
	}
}

// unique returns the items without repetitions, and for each item where it is
// in that list.
func unique[K comparable](items []Item[K]) (distinct []Item[K], index []int) {
	for _, it := range items {
		if it.Size < 0 {
			panic(fmt.Sprintf("cache: item %v of %d bytes", it.Key, it.Size))
		}
	}
	if len(items) == 1 {
		return items, []int{0}
	}
	at := make(map[K]int, len(items))
	index = make([]int, len(items))
	for i, it := range items {
		j, ok := at[it.Key]
		if !ok {
			j = len(distinct)
			at[it.Key] = j
			distinct = append(distinct, it)
		}
		index[i] = j
	}
	return distinct, index
}

// collect waits for the batches of the granted request r. On success r's
// entries are ready and pinned; otherwise r holds nothing. again says that
// another request's batch failed, over items that r did not ask for, maybe: r
// has to try for itself.
func (c *Cache[K]) collect(ctx context.Context, r *request[K]) (again bool, err error) {
	if r.batch != nil {
		c.start(ctx, r)
	}
	for _, b := range r.waits {
		select {
		case <-b.done:
		case <-ctx.Done():
		}
	}
	if err = concurrency.ContextErr(ctx); err == nil {
		again, err = r.judge()
		if !again && err == nil {
			return false, nil
		}
	}
	c.giveUp(r)
	if p, ok := err.(*concurrency.Panic); ok {
		panic(p)
	}
	return again, err
}

// judge looks for failures among r's batches, which are done. A batch all of
// whose items r asked for has failed r; any other may have failed over something
// else.
func (r *request[K]) judge() (again bool, err error) {
	for _, b := range r.waits {
		switch {
		case b.err == nil:
		case b == r.batch || r.covers(b):
			return false, b.err
		default:
			again = true
		}
	}
	return again, nil
}

// covers reports whether all items of b belong to r.
func (r *request[K]) covers(b *batch[K]) bool {
	n := 0
	for _, e := range r.entries {
		for _, x := range b.entries {
			if e == x {
				n++
			}
		}
	}
	return n == len(b.entries)
}

// giveUp returns all that the granted request r holds.
func (c *Cache[K]) giveUp(r *request[K]) {
	c.mu.Lock()
	defer c.unlock()
	for _, e := range r.entries {
		c.unpin(e)
	}
	for _, b := range r.waits {
		c.leave(b)
	}
}

// leaseAll turns the pins of r into leases, for each item as often as index
// names it.
func (c *Cache[K]) leaseAll(r *request[K], index []int) (leases []Lease, hits int) {
	c.mu.Lock()
	defer c.unlock()
	leases = make([]Lease, len(index))
	for i, j := range index {
		e := r.entries[j]
		switch r.kinds[j] {
		case taken:
			c.pin(e) // the first lease has the request's pin
			c.count(e, &c.stats.Hits)
			hits++
		case hit:
			c.count(e, &c.stats.Hits)
			hits++
		case joined:
			c.count(e, &c.stats.Hits)
			c.stats.Joined++
			hits++
		case miss:
			c.count(e, &c.stats.Misses)
		}
		r.kinds[j] = taken
		leases[i] = c.leaseOf(e)
	}
	return leases, hits
}
