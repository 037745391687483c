package store

import (
	"iter"
	"math"
	"sort"

	"nibble/concurrency"
	"nibble/mmap"
	"nibble/tensor"
)

// How a batch is cut. BenchmarkRange, Fresh and Share in bench are where the
// sizes of ranges and the shares of workers come from. A second worker starts 15
// to 30 µs late, in which the first decodes a MiB, and ends as much later than
// it or earlier: below soloBytes two gain little where memory feeds both, and
// lose where it does not.
const (
	rangeBytes  = 1 << 20  // of output, in one range of the queue
	freshBytes  = 2 << 20  // the same in fresh memory: a huge page, which two workers would both clear
	hereBytes   = 16 << 20 // of output from memory, up to which a request decodes what it misses itself: a millisecond or so, without kernels ten
	soloBytes   = 8 << 20  // of output, below which one worker decodes the batch
	shareBytes  = 4 << 20  // of output, for each worker of a larger one
	aheadRanges = 8        // ranges whose source the system is asked for at once, on first use
	alignBlocks = 256      // a range starts at a multiple of so many blocks, so that nested scales decode in whole groups
)

// job asks for elements [lo, hi) of a tensor in dst.
type job struct {
	t      *Tensor
	r      *resolution
	dt     tensor.DType
	lo, hi int64
	dst    []byte
	fresh  bool // dst was never written to: its pages are yet to be populated
	tile   bool // dst is a small buffer that is used again and again
	cold   bool // the source bytes may have to come from the disk
}

// batch is the one queue of a decode: the ranges of all its jobs.
type batch struct {
	jobs   []job
	ranges []concurrency.Ranges // by job
	first  []int                // number of the first range, by job, and the total behind
	cold   bool                 // a job is
}

func newBatch(jobs []job) *batch {
	b := &batch{jobs: jobs, ranges: make([]concurrency.Ranges, len(jobs)), first: make([]int, len(jobs)+1)}
	for i := range jobs {
		j := &jobs[i]
		b.ranges[i] = concurrency.Split(j.lo, j.hi, j.step())
		b.first[i+1] = b.first[i] + b.ranges[i].Len()
		b.cold = b.cold || j.cold
	}
	return b
}

// step is the number of elements of j that a worker decodes at a time.
func (j *job) step() int64 {
	unit := j.r.dec.Align()
	if j.r.blockSize > 0 {
		// A file may claim any size for a block: one that holds the whole tensor
		// is as good as one that is larger.
		unit = min(j.r.blockSize, max(j.r.dec.Numel(), 1))
		unit *= min(alignBlocks, math.MaxInt64/unit)
	}
	unit = max(min(unit, math.MaxInt64/2), 1)
	bytes := int64(rangeBytes)
	if j.fresh {
		bytes = freshBytes
	}
	return max(bytes*8/int64(j.dt.Bits())/unit, 1) * unit
}

// len is the number of ranges.
func (b *batch) len() int { return b.first[len(b.jobs)] }

// job is the number of the job that range i belongs to.
func (b *batch) job(i int) int { return sort.SearchInts(b.first, i+1) - 1 }

// at finds the job of range i, by its number, and the range's elements.
func (b *batch) at(i int) (n int, lo, hi int64) {
	n = b.job(i)
	lo, hi = b.ranges[n].At(i - b.first[n])
	return n, lo, hi
}

// workers is how many workers the batch can use.
func (b *batch) workers() int {
	var total int64
	for i := range b.jobs {
		total += int64(len(b.jobs[i].dst))
	}
	if total < soloBytes {
		return 1
	}
	return int(total / shareBytes)
}

// window is the ranges [from, to) whose source is asked for before range i is
// decoded: the next aheadRanges now and then, so that these and as many behind
// them are always on their way.
func (b *batch) window(i int) (from, to int) {
	switch {
	case i == 0:
		return 0, min(2*aheadRanges, b.len())
	case i%aheadRanges == 0:
		return min(i+aheadRanges, b.len()), min(i+2*aheadRanges, b.len())
	}
	return i, i
}

// piece is elements [lo, hi) of a job.
type piece struct {
	job    *job
	lo, hi int64
}

// ahead yields what the system is to be asked for before range i is decoded: a
// fault by itself reads little ahead, least when several workers fault in
// turns, and nothing of the next tensor. Jobs whose source was read before are
// left out: where the bytes are in memory, asking costs more than it brings.
func (b *batch) ahead(i int) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		if !b.cold {
			return
		}
		for from, to := b.window(i); from < to; {
			n := b.job(from)
			end := min(to, b.first[n+1])
			if b.jobs[n].cold {
				lo, _ := b.ranges[n].At(from - b.first[n])
				_, hi := b.ranges[n].At(end - 1 - b.first[n])
				if !yield(piece{&b.jobs[n], lo, hi}) {
					return
				}
			}
			from = end
		}
	}
}

// fetch asks the system for the source of the piece.
func (p piece) fetch() {
	j := p.job
	for i := range j.r.dec.Parts() {
		e := j.r.parts[i]
		if off, n := e.source(j.r.dec.Span(i, p.lo, p.hi)); n > 0 {
			_ = e.shard.file.Advise(mmap.WillNeed, off, n)
		}
	}
}
