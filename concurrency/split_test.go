package concurrency

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is asked, the ranges cover [lo, hi) once, in order, and start at
// multiples of step.
func TestSplitCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Int64Range(0, 1<<20).Draw(t, "lo")
		hi := rapid.Int64Range(lo-5, lo+1<<20).Draw(t, "hi")
		step := rapid.Int64Range(max(1, (hi-lo)/1000), 1<<21).Draw(t, "step")
		r := Split(lo, hi, step)
		at := lo
		for i := range r.Len() {
			from, to := r.At(i)
			if from != at || to <= from {
				t.Fatalf("range %d is [%d, %d), the one before ended at %d", i, from, to, at)
			}
			if i > 0 && from%step != 0 {
				t.Fatalf("range %d starts at %d, not a multiple of %d", i, from, step)
			}
			if to-from > step {
				t.Fatalf("range %d has %d elements, more than %d", i, to-from, step)
			}
			at = to
		}
		if at != max(lo, hi) {
			t.Fatalf("covered up to %d of %d", at, hi)
		}
	})
}

func TestSplit(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		lo, hi, step int64
		want         []int64 // where each range ends
	}{
		{0, 0, 64, nil},
		{7, 3, 64, nil},
		{0, 1, 64, []int64{1}},
		{0, 3, 0, []int64{1, 2, 3}},
		{0, 128, 64, []int64{64, 128}},
		{0, 129, 64, []int64{64, 128, 129}},
		{63, 65, 64, []int64{64, 65}},
		{64, 65, 64, []int64{65}},
		{100, 200, 64, []int64{128, 192, 200}},
		{0, most, most, []int64{most}},
		{0, most, most/2 + 1, []int64{most/2 + 1, most}},
		{most - 2, most, most - 1, []int64{most - 1, most}},
	} {
		r := Split(c.lo, c.hi, c.step)
		var ends []int64
		for i := range r.Len() {
			_, hi := r.At(i)
			ends = append(ends, hi)
		}
		if !slices.Equal(ends, c.want) {
			t.Errorf("Split(%d, %d, %d): ranges end at %v, want %v", c.lo, c.hi, c.step, ends, c.want)
		}
	}
}
