package cache

import (
	"fmt"
	"hash/maphash"
)

// entry is one decoded output: in flight until its batch is done, then leased
// or idle.
type entry[K comparable] struct {
	cache *Cache[K]
	key   K
	size  int64
	bytes []byte // written by the batch before ready is set, then never again
	block *block
	batch *batch[K] // that decodes it; nil once ready

	pins    int  // leases, and requests that are about to become leases
	leases  int  // leases proper
	ready   bool // decoded
	dropped bool // goes with its last lease
	ahead   bool // prefetched, and not asked for yet
	ranked  bool // known to the policy

	sum    uint64 // of bytes while leased, under -tags invariants
	sealed bool
}

// pin keeps e from being evicted.
func (c *Cache[K]) pin(e *entry[K]) {
	if e.pins == 0 && e.ready {
		c.ledger.idle -= e.block.capacity
		c.ledger.leased += e.block.capacity
	}
	e.pins++
}

// unpin undoes one pin. The last one makes a ready entry idle, or drops it.
func (c *Cache[K]) unpin(e *entry[K]) {
	e.pins--
	if e.pins > 0 || !e.ready {
		return
	}
	c.ledger.leased -= e.block.capacity
	c.ledger.idle += e.block.capacity
	c.rest(e)
	c.settle()
}

// rest makes the ready entry e, which nobody holds, a candidate for eviction.
func (c *Cache[K]) rest(e *entry[K]) {
	if e.dropped || e.block.region != nil && e.block.region.private || c.ledger.budget == 0 {
		c.drop(e)
		return
	}
	c.rank.idle(e.key, e.size)
	e.ranked = true
}

// drop forgets the idle entry e and frees its bytes.
func (c *Cache[K]) drop(e *entry[K]) { c.remove(e, dropped) }

// remove does the same and tells the policy why.
func (c *Cache[K]) remove(e *entry[K], why reason) {
	c.rank.remove(e.key, why)
	e.ranked = false
	delete(c.entries, e.key)
	c.ledger.idle -= e.block.capacity
	c.free(e.block)
	e.block = nil
}

// evict drops the idle entry that the policy ranks lowest. may, where not nil,
// is asked first whether that entry may go.
func (c *Cache[K]) evict(may func(*entry[K]) bool) bool {
	for {
		k, ok := c.rank.worst()
		if !ok {
			return false
		}
		e := c.entries[k]
		if e.pins == 0 {
			if may != nil && !may(e) {
				return false
			}
			c.stats.Evictions++
			c.remove(e, evicted)
			return true
		}
		c.rank.remove(k, inUse)
		e.ranked = false
	}
}

// seal remembers what the bytes are while they are leased.
func (e *entry[K]) seal() {
	if !e.sealed {
		e.sum, e.sealed = maphash.Bytes(sealSeed, e.bytes), true
	}
}

// checkSeal panics if a holder of the last lease wrote to the bytes.
func (e *entry[K]) checkSeal() {
	if e.leases > 0 {
		return
	}
	if e.sum != maphash.Bytes(sealSeed, e.bytes) {
		panic(fmt.Sprintf("cache: the bytes of %v were written while leased; leases are read-only", e.key))
	}
	e.sealed = false
}

var sealSeed = maphash.MakeSeed()
