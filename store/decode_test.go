package store

import "testing"

// A second worker costs more to wake than it helps with a small batch, however
// many tensors it has: two are never slower than one.
func TestWorkersOfABatch(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		sizes []int
		want  int
	}{
		{nil, 1},
		{[]int{1}, 1},
		{[]int{8*mib - 1}, 1},
		{[]int{8 * mib}, 2},
		{[]int{3 * mib, 3 * mib}, 1},
		{[]int{4 * mib, 4 * mib}, 2},
		{[]int{64 * mib}, 16},
	} {
		var b batch
		for _, n := range c.sizes {
			b.jobs = append(b.jobs, job{dst: make([]byte, n)})
		}
		if got := b.workers(); got != c.want {
			t.Errorf("tensors of %v bytes: %d workers; want %d", c.sizes, got, c.want)
		}
	}
}
