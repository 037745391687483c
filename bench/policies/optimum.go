package main

import (
	"math"
	"slices"
)

// optimum returns, for each pass, the fewest bytes that anybody who knows the
// future would decode. It is a bound: a tensor may be kept in part.
//
// A request needs its tensor whole (the lease); what is kept besides is kept
// until its next use or not at all. In units of bytes that is interval
// scheduling with a capacity that varies, where dropping what is needed latest
// is optimal, so the bound is exact for tensors of one byte, and for tensors of
// one size where the budget is a multiple of it.
func optimum(t trace) []int64 {
	var flat []access
	for _, p := range t.passes {
		flat = append(flat, p...)
	}
	next := nextUses(flat)
	kept := map[int]int64{} // bytes of each tensor in the cache
	use := map[int]int{}    // its next use
	var bytes int64
	decoded := make([]int64, 0, len(t.passes))
	i := 0
	for _, p := range t.passes {
		var n int64
		for _, a := range p {
			missing := a.size - kept[a.key]
			n += missing
			bytes += missing
			kept[a.key] = a.size
			bytes -= shrink(kept, use, a.key, bytes-t.budget)
			use[a.key] = next[i]
			if next[i] == math.MaxInt {
				bytes -= a.size
				delete(kept, a.key)
			}
			i++
		}
		decoded = append(decoded, n)
	}
	return decoded
}

// shrink drops excess bytes of tensors other than leased, latest use first, and
// returns how many it could.
func shrink(kept map[int]int64, use map[int]int, leased int, excess int64) (dropped int64) {
	for dropped < excess {
		worst := -1
		for k := range kept {
			if k != leased && (worst < 0 || use[k] > use[worst]) {
				worst = k
			}
		}
		if worst < 0 {
			break
		}
		n := min(kept[worst], excess-dropped)
		dropped += n
		if kept[worst] -= n; kept[worst] == 0 {
			delete(kept, worst)
		}
	}
	return dropped
}

// nextUses gives for each request the index of the next one for the same key.
func nextUses(flat []access) []int {
	next := make([]int, len(flat))
	seen := map[int]int{}
	for i, a := range slices.Backward(flat) {
		next[i] = math.MaxInt
		if n, ok := seen[a.key]; ok {
			next[i] = n
		}
		seen[a.key] = i
	}
	return next
}
