package concurrency

// Ranges are consecutive half-open ranges that together cover [lo, hi) once. It
// is a value of three words: the i-th range is computed, not stored.
type Ranges struct{ lo, hi, step int64 }

// Split cuts [lo, hi), where 0 <= lo, at the multiples of step, wherever lo is.
// A step below 1 counts as 1. There are fewer pieces than an int can count: the
// caller chooses step so.
func Split(lo, hi, step int64) Ranges { return Ranges{lo, max(lo, hi), max(step, 1)} }

// Len is the number of ranges.
func (r Ranges) Len() int {
	if r.lo == r.hi {
		return 0
	}
	return int((r.hi-1)/r.step - r.lo/r.step + 1)
}

// At returns range i, 0 <= i < Len(), as [lo, hi).
func (r Ranges) At(i int) (lo, hi int64) {
	begin := (r.lo/r.step + int64(i)) * r.step
	return max(r.lo, begin), begin + min(r.step, r.hi-begin) // begin+step may overflow
}
