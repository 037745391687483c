package concurrency

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is asked, the ranges cover [0, n) once, in order, and start at
// multiples of align.
func TestSplitCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-5, 1<<20).Draw(t, "n")
		align := rapid.Int64Range(-1, 5000).Draw(t, "align")
		target := rapid.Int64Range(max(1, n/1000), 1<<21).Draw(t, "target")
		r := Split(n, align, target)
		var at int64
		for i := range r.Len() {
			lo, hi := r.At(i)
			if lo != at || hi <= lo {
				t.Fatalf("range %d is [%d, %d), the one before ended at %d", i, lo, hi, at)
			}
			if lo%max(align, 1) != 0 {
				t.Fatalf("range %d starts at %d, not a multiple of %d", i, lo, align)
			}
			if size := hi - lo; size > 2*target+max(align, 1) {
				t.Fatalf("range %d has %d elements, the target is %d", i, size, target)
			}
			at = hi
		}
		if at != max(n, 0) {
			t.Fatalf("%d of %d elements are covered", at, n)
		}
	})
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		n, align, target int64
		lens             []int64
	}{
		{0, 64, 1000, nil},
		{1, 64, 1000, []int64{1}},
		{1000, 1, 1000, []int64{1000}},
		{1499, 1, 1000, []int64{1499}}, // half a range more is not worth a worker
		{1600, 1, 1000, []int64{800, 800}},
		{4096, 256, 1000, []int64{1024, 1024, 1024, 1024}},
		{100, 64, 10, []int64{64, 36}},
		{math.MaxInt64, math.MaxInt64, 1, []int64{math.MaxInt64}},
		{math.MaxInt64, 64, math.MaxInt64, []int64{math.MaxInt64}},
		{math.MaxInt64, 1, math.MaxInt64/2 + 1, []int64{math.MaxInt64/2 + 1, math.MaxInt64 / 2}},
	} {
		r := Split(tt.n, tt.align, tt.target)
		if r.Len() != len(tt.lens) {
			t.Errorf("Split(%d, %d, %d) has %d ranges, want %d", tt.n, tt.align, tt.target, r.Len(), len(tt.lens))
			continue
		}
		for i, want := range tt.lens {
			if lo, hi := r.At(i); hi-lo != want {
				t.Errorf("Split(%d, %d, %d): range %d has %d elements, want %d", tt.n, tt.align, tt.target, i, hi-lo, want)
			}
		}
	}
}

// A count of ranges that an int does not hold is made of longer ranges.
func TestSplitLenFitsInt(t *testing.T) {
	if n := Split(math.MaxInt64, 1, 1).Len(); n <= 0 {
		t.Errorf("Len is %d", n)
	}
}
