package cache

import (
	"context"
	"errors"

	"nibble/concurrency"
)

// Loader decodes items: it fills bufs[i], of items[i].Size bytes, aligned to 64
// and holding anything. The buffers belong to the loader until it returns. It
// runs on a goroutine of its own or that of a request (see Options.Here), never
// under the cache's lock, and must not wait for bytes of the same cache. Its
// context carries the values of the first request's, and ends when the last
// request that waits for any of the items has left. An error fails all items; a
// panic is re-raised, as *concurrency.Panic, in every request that waits.
type Loader[K comparable] func(ctx context.Context, items []Item[K], bufs [][]byte) error

// batch is one call of a Loader.
type batch[K comparable] struct {
	cache   *Cache[K]
	ctx     context.Context
	cancel  context.CancelFunc
	load    Loader[K]
	here    bool // on the goroutine of the request that started it
	entries []*entry[K]
	done    chan struct{} // closed when all entries are ready, or err is set
	err     error

	waiters   int  // requests that wait for one of the entries
	ahead     bool // started by Prefetch, whose context is not done
	deserted  bool // the context of the request that decodes it here is done
	abandoned bool // nobody waits any more: the entries are out of the map
}

// grant gives r its pinned entries and, for the misses, blocks and a batch to
// decode into them. The caller of submit starts the batch.
func (c *Cache[K]) grant(r *request[K], blocks []*block) {
	if len(r.items) == 0 {
		r.buffer = blocks[0]
		c.ledger.inFlight -= r.buffer.capacity
		c.ledger.scratch += r.buffer.capacity
		return
	}
	r.kinds = make([]kind, len(r.items))
	var missing []Item[K]
	for i, e := range r.entries {
		if e == nil || !e.dropped {
			c.rank.access(r.items[i].Key, r.items[i].Size)
		}
		switch {
		case e == nil:
			r.kinds[i] = miss
			missing = append(missing, r.items[i])
		case !e.ready:
			r.kinds[i] = joined
		}
	}
	if missing != nil {
		r.batch = c.newBatch(r.ctx, missing, blocks, r.load)
		r.batch.here = c.here(missing)
	}
	next := 0
	for i, e := range r.entries {
		if e == nil {
			r.entries[i] = r.batch.entries[next]
			r.entries[i].pins++
			next++
		}
	}
	r.waits = r.batches()
	for _, b := range r.waits {
		b.waiters++
	}
}

// batches lists the batches that decode r's entries, each once.
func (r *request[K]) batches() []*batch[K] {
	var list []*batch[K]
next:
	for _, e := range r.entries {
		if e.batch == nil {
			continue
		}
		for _, b := range list {
			if b == e.batch {
				continue next
			}
		}
		list = append(list, e.batch)
	}
	return list
}

// newBatch enters items, with their blocks, as in flight.
func (c *Cache[K]) newBatch(ctx context.Context, items []Item[K], blocks []*block, load Loader[K]) *batch[K] {
	b := &batch[K]{cache: c, load: load, done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i, it := range items {
		e := &entry[K]{cache: c, key: it.Key, size: it.Size, block: blocks[i], batch: b}
		c.entries[it.Key] = e
		b.entries = append(b.entries, e)
	}
	c.batches[b] = struct{}{}
	return b
}

// all reports whether every key of the batch matches.
func (b *batch[K]) all(match func(K) bool) bool {
	return !b.any(func(k K) bool { return !match(k) })
}

// any reports whether a key of the batch matches.
func (b *batch[K]) any(match func(K) bool) bool {
	for _, e := range b.entries {
		if match(e.key) {
			return true
		}
	}
	return false
}

// leave ends one request's interest in b. With the last one the decode is
// cancelled, and the next request for its keys starts another.
func (c *Cache[K]) leave(b *batch[K]) {
	b.waiters--
	if b.wanted() == 0 && !b.ahead && !b.finished() {
		c.abandon(b)
	}
}

// wanted is the number of requests that still have a use for b. One that decodes
// it waits to the end, whatever becomes of its context.
func (b *batch[K]) wanted() int {
	if b.deserted {
		return b.waiters - 1
	}
	return b.waiters
}

func (c *Cache[K]) abandon(b *batch[K]) {
	b.ahead = false
	b.abandoned = true
	b.cancel()
	for _, e := range b.entries {
		if c.entries[e.key] == e {
			delete(c.entries, e.key)
		}
	}
}

func (b *batch[K]) finished() bool {
	_, running := b.cache.batches[b]
	return !running
}

// start decodes for the request r of ctx: on a goroutine of its own, so that
// every request, this one included, can leave when its context is done; or here.
func (c *Cache[K]) start(ctx context.Context, r *request[K]) {
	b := r.batch
	if !b.here || ctx.Err() != nil {
		go b.run() // even if ctx is done: others may have joined by now
		return
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in the loader takes the request along
			c.giveUp(r)
		}
	}()
	defer context.AfterFunc(ctx, func() { c.desert(b) })()
	b.run()
	returned = true
}

// desert says that the request that decodes b has no use for it any more, and
// cancels it unless others wait for it.
func (c *Cache[K]) desert(b *batch[K]) {
	c.mu.Lock()
	defer c.unlock()
	if b.finished() {
		return
	}
	b.deserted = true
	if b.wanted() == 0 {
		c.abandon(b)
	}
}

// here reports whether a request decodes what it misses by itself.
func (c *Cache[K]) here(missing []Item[K]) bool {
	var total int64
	for _, it := range missing {
		if total += it.Size; it.Waits || total > c.opts.Here {
			return false
		}
	}
	return true
}

// run decodes.
func (b *batch[K]) run() {
	defer b.cancel()
	err := b.decode()
	c := b.cache
	c.mu.Lock()
	unheard := b.waiters == 0
	c.finish(b, err)
	c.unlock()
	if p, ok := err.(*concurrency.Panic); ok && unheard {
		panic(p) // a bug must not pass in silence
	}
}

// decode maps the blocks and calls the loader.
func (b *batch[K]) decode() (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = concurrency.Recovered(v)
		} else if !returned {
			// runtime.Goexit in the loader. The goroutine is on its way out
			// and will not come back to run.
			b.exit()
		}
	}()
	err = b.call()
	returned = true
	return err
}

func (b *batch[K]) call() error {
	if err := b.ctx.Err(); err != nil {
		return err // everybody left before it began
	}
	items := make([]Item[K], len(b.entries))
	bufs := make([][]byte, len(b.entries))
	for i, e := range b.entries {
		buf, err := e.block.bytes()
		if err != nil {
			return err
		}
		items[i] = Item[K]{Key: e.key, Size: e.size, Fresh: e.block.fresh()}
		bufs[i] = buf
		e.bytes = buf
	}
	return b.load(b.ctx, items, bufs)
}

// exit finishes a batch whose loader called runtime.Goexit.
func (b *batch[K]) exit() {
	c := b.cache
	c.mu.Lock()
	c.finish(b, errGoexit)
	c.unlock()
}

// finish delivers the batch: its entries become ready, or go.
func (c *Cache[K]) finish(b *batch[K], err error) {
	delete(c.batches, b)
	for _, e := range b.entries {
		c.ledger.inFlight -= e.block.capacity
		e.batch = nil
		if err != nil || b.abandoned {
			if c.entries[e.key] == e {
				delete(c.entries, e.key)
			}
			c.free(e.block)
			e.block, e.bytes = nil, nil
			continue
		}
		c.deliver(e, b.ahead)
	}
	b.err = err
	close(b.done)
	c.settle()
}

// deliver makes e ready: leased if a request waits for it, else idle.
func (c *Cache[K]) deliver(e *entry[K], ahead bool) {
	e.ready = true
	c.stats.BytesDecoded += e.size
	if ahead {
		c.stats.Prefetched++
	}
	if e.pins > 0 {
		c.ledger.leased += e.block.capacity
		return
	}
	e.ahead = ahead
	c.ledger.idle += e.block.capacity
	c.rest(e)
}

var errGoexit = errors.New("cache: the loader ended by runtime.Goexit")
