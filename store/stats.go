package store

import "nibble/cache"

// Stats counts what a store did since it was opened. What is embedded (Hits,
// Misses, Evictions, Prefetched, Budget, Used, Peak and more) is the cache's: of
// a shared one, what all of its stores did. Hits, misses and views count
// tensors; all sizes are bytes.
type Stats struct {
	cache.Stats
	// Views is how many leases were lent straight from a mapping: neither
	// cached nor charged.
	Views int64
	// Decoded is how many bytes of output the decoders wrote, for the cache
	// (BytesDecoded), for tiles and for callers' own buffers.
	Decoded int64
	// Mapped and Read say how the store reads its files: by mapping, or by
	// pread.
	Mapped, Read int
	// PageAdvice reports whether the system takes advice about the page cache.
	// Without it Config.SourcePages has no effect.
	PageAdvice bool
}

// Stats returns the current statistics.
func (st *Store) Stats() Stats {
	s := Stats{Stats: st.cache.Stats(), Views: st.counters.views.Load(), Decoded: st.counters.decoded.Load(), PageAdvice: true}
	for _, sh := range st.shards {
		if sh.file.Mapped() {
			s.Mapped++
		} else {
			s.Read++
		}
		s.PageAdvice = s.PageAdvice && sh.file.CanAdvise()
	}
	return s
}

// SetBudget changes the budget to n bytes, below 1 to none, and returns how many
// bytes are over it: those that open leases and decodes in flight hold. It does
// not wait.
func (st *Store) SetBudget(n int64) (over int64) { return st.cache.SetBudget(n) }
