package store

import (
	"math"
	"testing"

	"nibble/concurrency"
	"nibble/quant"
	"nibble/tensor"
)

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

// A range is a whole number of groups of blocks, so that nested scales are never
// decoded twice, whatever a file says that a block is.
func TestStep(t *testing.T) {
	const mi = 1 << 20
	plain := quant.NewPlain(64*mi, tensor.BF16)
	for _, c := range []struct {
		dt        tensor.DType
		blockSize int64
		fresh     bool
		want      int64 // elements
	}{
		{tensor.BF16, 0, false, mi / 2},
		{tensor.F32, 0, false, mi / 4},
		{tensor.BF16, 64, false, mi / 2},
		{tensor.BF16, 64, true, mi},
		{tensor.F32, 4096, false, mi},
		{tensor.F32, 4096, true, mi},
		{tensor.F32, 3 * 64, true, mi / 2 / (3 * 64 * 256) * (3 * 64 * 256)},
		{tensor.BF16, math.MaxInt64, false, 64 * mi * alignBlocks},
	} {
		j := job{r: &resolution{dec: plain, blockSize: c.blockSize}, dt: c.dt, fresh: c.fresh}
		if got := j.step(); got != c.want {
			t.Errorf("%v, blocks of %d, fresh %v: %d elements; want %d", c.dt, c.blockSize, c.fresh, got, c.want)
		}
	}
}

// ranges makes a batch of jobs with so many ranges each, of ten elements.
func ranges(counts ...int64) *batch {
	b := &batch{jobs: make([]job, len(counts)), first: []int{0}}
	for i, n := range counts {
		b.jobs[i] = job{hi: 10 * n}
		b.ranges = append(b.ranges, concurrency.Split(0, 10*n, 10))
		b.first = append(b.first, b.first[i]+int(n))
	}
	return b
}

// Jobs without elements have no range, and those around them keep theirs.
func TestRangesOfABatch(t *testing.T) {
	b := ranges(2, 0, 0, 1, 3)
	want := []struct {
		job    int
		lo, hi int64
	}{{0, 0, 10}, {0, 10, 20}, {3, 0, 10}, {4, 0, 10}, {4, 10, 20}, {4, 20, 30}}
	if b.len() != len(want) {
		t.Fatalf("%d ranges; want %d", b.len(), len(want))
	}
	for i, w := range want {
		if n, lo, hi := b.at(i); n != w.job || lo != w.lo || hi != w.hi {
			t.Errorf("range %d is [%d, %d) of job %d; want %v", i, lo, hi, n, w)
		}
	}
}

// The source of every element is asked for once: before it is decoded, and
// before the aheadRanges ranges in front of it are, if they are there, whichever
// tensors these belong to. What was decoded before is not asked for.
func TestAhead(t *testing.T) {
	for _, counts := range [][]int64{{1}, {aheadRanges}, {2*aheadRanges + 1}, {5*aheadRanges - 3}, {3, 0, 1, 2 * aheadRanges, 7, 1, 1}} {
		b := ranges(counts...)
		asked := make([]int64, len(b.jobs)) // elements
		for n := range b.jobs {
			b.jobs[n].cold = n != 2
			b.cold = true
		}
		for i := range b.len() {
			for p := range b.ahead(i) {
				for n := range b.jobs {
					if &b.jobs[n] != p.job {
						continue
					}
					if p.lo != asked[n] || !p.job.cold {
						t.Errorf("%v: asked for [%d, %d) of job %d, cold %v, after %d", counts, p.lo, p.hi, n, p.job.cold, asked[n])
					}
					asked[n] = p.hi
				}
			}
			n, _, hi := b.at(min(i+aheadRanges, b.len()) - 1)
			if b.jobs[n].cold && asked[n] < hi {
				t.Fatalf("%v: before range %d, %d elements of job %d were asked for; want %d", counts, i, asked[n], n, hi)
			}
			if n, lo, _ := b.at(min(i+2*aheadRanges, b.len()-1)); i+2*aheadRanges < b.len() && asked[n] > lo {
				t.Fatalf("%v: before range %d, %d elements of job %d were asked for already", counts, i, asked[n], n)
			}
		}
		for n, j := range b.jobs {
			if j.cold && asked[n] != j.hi {
				t.Errorf("%v: asked for %d elements of job %d; want %d", counts, asked[n], n, j.hi)
			}
		}
	}
}

// A batch whose sources are in memory asks for nothing.
func TestAheadWarm(t *testing.T) {
	for range ranges(3).ahead(0) {
		t.Error("asked")
	}
}
