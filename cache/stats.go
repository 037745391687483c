package cache

// Stats is a snapshot. Bytes are capacities, as charged, but for
// BytesDecoded and BytesAcquired, which are sizes of outputs.
type Stats struct {
	// Hits and Misses add up to the leases handed out. A request that joined a
	// decode in flight is a hit; Joined counts those, too.
	Hits, Misses, Joined int64
	Evictions            int64 // outputs that went for want of bytes
	Prefetched           int64 // outputs decoded ahead of a request
	Waits                int64 // requests that had to wait for bytes
	Oversize             int64 // outputs and buffers above the budget that were let in
	StaleReleases        int64 // calls of Release on a lease released before

	// 1 - BytesDecoded/BytesAcquired is the hit rate by bytes. BytesDecoded
	// includes prefetches, but not decodes that failed or were abandoned.
	BytesDecoded, BytesAcquired int64

	Budget int64
	Used   int64 // everything charged: the five below
	Peak   int64 // the largest Used so far

	Idle      int64 // entries that may be evicted
	Leased    int64 // entries that may not
	InFlight  int64 // being decoded
	Scratch   int64 // buffers
	ArenaFree int64 // kept for reuse

	Entries int // in the cache, leased and in flight included
	Waiting int // requests that wait for bytes now
}

// Stats returns the current figures, all from one moment.
func (c *Cache[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	l := &c.ledger
	s.StaleReleases = int64(c.stale.Load())
	s.Budget, s.Used, s.Peak = l.budget, l.used, l.peak
	s.Idle, s.Leased, s.InFlight, s.Scratch, s.ArenaFree = l.idle, l.leased, l.inFlight, l.scratch, l.free()
	s.Entries, s.Waiting = len(c.entries), c.line.Len()
	return s
}
