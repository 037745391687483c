package cache

import (
	"fmt"

	"nibble/internal/invariants"
)

// ledger is the account of all bytes that the cache has from the system. What
// is charged and not held by anyone is free in the arena.
type ledger struct {
	budget int64
	used   int64 // capacity of all regions
	peak   int64 // the largest used so far

	// Capacity of the blocks, by who holds them.
	idle, leased, inFlight, scratch int64
}

// charge adds n bytes of new regions.
func (l *ledger) charge(n int64) {
	l.used += n
	l.peak = max(l.peak, l.used)
}

// credit takes off n bytes of regions that return to the system.
func (l *ledger) credit(n int64) { l.used -= n }

// free is the part of used that nobody holds.
func (l *ledger) free() int64 { return l.used - l.held() - l.idle }

// held is what nobody but its holder can give back.
func (l *ledger) held() int64 { return l.leased + l.inFlight + l.scratch }

// check panics on an account that cannot be, in paranoid builds.
func (l *ledger) check() {
	if !invariants.Enabled {
		return
	}
	if min(l.budget, l.idle, l.leased, l.inFlight, l.scratch, l.free()) < 0 {
		panic(fmt.Sprintf("cache: broken account %+v", *l))
	}
}
