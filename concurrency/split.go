package concurrency

import "math"

// Ranges are consecutive half-open ranges that together cover [0, n) once. It
// is a value of two words: the i-th range is computed, not stored.
type Ranges struct{ n, step int64 }

// Split cuts n elements into ranges of about target elements, of equal length
// but for the last, each starting at a multiple of align. An align or target
// below 1 counts as 1, a negative n as 0.
func Split(n, align, target int64) Ranges {
	n, align, target = max(n, 0), max(align, 1), max(target, 1)
	if n == 0 {
		return Ranges{step: align}
	}
	count := n / target
	if n%target > target/2 || count == 0 {
		count++
	}
	// Even ranges: a short last one would leave the other workers idle.
	step := roundUp(ceilDiv(n, min(count, math.MaxInt)), align)
	return Ranges{n, step}
}

// Len is the number of ranges.
func (r Ranges) Len() int { return int(ceilDiv(r.n, r.step)) }

// At returns range i, 0 <= i < Len(), as [lo, hi).
func (r Ranges) At(i int) (lo, hi int64) {
	lo = int64(i) * r.step
	return lo, lo + min(r.step, r.n-lo)
}

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// roundUp returns the least multiple of m that is >= a, or MaxInt64 where there
// is none: then one range covers everything.
func roundUp(a, m int64) int64 {
	q := ceilDiv(a, m)
	if q > math.MaxInt64/m {
		return math.MaxInt64
	}
	return q * m
}
