package store

import (
	"context"
	"math"
	"sort"

	"nibble/cache"
	"nibble/internal/rule"
	"nibble/mmap"
	"nibble/quant"
	"nibble/tensor"
)

// How a batch is cut. The figures come from BenchmarkRange and BenchmarkShare in
// bench. Waking a worker costs 30 to 130 µs, in which another one decodes 1 to
// 4 MiB: below soloBytes there is too little left for it to help with.
const (
	rangeBytes  = 1 << 20 // of output, in one range of the queue
	soloBytes   = 8 << 20 // of output, below which one worker decodes the batch
	shareBytes  = 4 << 20 // of output, for each worker of a larger one
	aheadRanges = 16      // ranges whose source the system is asked for at once, on first use
	alignBlocks = 256     // a range starts at a multiple of so many blocks, so that nested scales decode in whole groups
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
	jobs  []job
	step  []int64 // elements a range, by job
	first []int   // number of the first range, by job, and the total behind
}

func newBatch(jobs []job) *batch {
	b := &batch{jobs: jobs, step: make([]int64, len(jobs)), first: make([]int, len(jobs)+1)}
	for i := range jobs {
		j := &jobs[i]
		b.step[i] = step(j)
		// Ranges but the first start at a multiple of step, wherever lo is.
		n := (j.hi+b.step[i]-1)/b.step[i] - j.lo/b.step[i]
		b.first[i+1] = b.first[i] + int(n)
	}
	return b
}

// step is the number of elements in one range of j.
func step(j *job) int64 {
	unit := j.r.dec.Align()
	if j.r.blockSize > 0 {
		// A file may claim any size for a block: one that holds the whole tensor
		// is as good as one that is larger.
		unit = min(j.r.blockSize, max(j.r.dec.Numel(), 1))
		unit *= min(alignBlocks, math.MaxInt64/unit)
	}
	unit = max(min(unit, math.MaxInt64/2), 1)
	perRange := rangeBytes * 8 / int64(j.dt.Bits())
	return max(perRange/unit, 1) * unit
}

// at finds the job of range i, by its number, and the range's elements.
func (b *batch) at(i int) (n int, lo, hi int64) {
	n = sort.SearchInts(b.first, i+1) - 1
	j, step := &b.jobs[n], b.step[n]
	k := j.lo/step + int64(i-b.first[n])
	return n, max(j.lo, k*step), min(j.hi, (k+1)*step)
}

// fetch asks the system for the source of the ranges that come next, in windows
// of aheadRanges: a fault by itself reads little ahead. It is asked for once, on
// the first decode of a tensor: where the bytes are in memory already, asking
// costs more than it brings.
func (b *batch) fetch(i int) {
	n, lo, _ := b.at(i)
	j, window := &b.jobs[n], aheadRanges*b.step[n]
	k := i - b.first[n]
	if k%aheadRanges != 0 {
		return
	}
	to := min(j.hi, lo+2*window)
	if k > 0 {
		lo = min(j.hi, lo+window) // the window before asked so far
	}
	for p := range j.r.dec.Parts() {
		e := j.r.parts[p]
		if off, n := e.source(j.r.dec.Span(p, lo, to)); n > 0 {
			_ = e.shard.file.Advise(mmap.WillNeed, off, n)
		}
	}
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

// decode runs jobs from one queue, and then makes sure that the files still
// reach as far as was read: bytes behind the end of a file that shrank read as
// zeros up to the end of the page, without a fault.
func (st *Store) decode(ctx context.Context, jobs []job) error {
	for i := range jobs {
		jobs[i].cold = st.cfg.SourcePages == "drop" || !jobs[i].t.warm.Load()
	}
	b := newBatch(jobs)
	total := b.first[len(jobs)]
	workers := min(b.workers(), st.pool.Workers(), max(total, 1))
	scratch := st.takeScratch(workers)
	defer st.putScratch(scratch)
	err := st.pool.Run(ctx, total, workers, func(worker, i int) error {
		n, lo, hi := b.at(i)
		if jobs[n].cold {
			b.fetch(i)
		}
		return scratch[worker].decodeRange(ctx, &jobs[n], lo, hi)
	})
	if err != nil {
		return err
	}
	if !stillWhole(jobs) {
		for i := range jobs {
			if err := jobs[i].verify(); err != nil {
				return err
			}
		}
	}
	for i := range jobs {
		st.counters.decoded.Add(int64(len(jobs[i].dst)))
		jobs[i].t.warm.Store(true)
		if st.cfg.SourcePages == "drop" {
			jobs[i].dropPages()
		}
	}
	return nil
}

// scratch is what one worker reuses from range to range.
type scratch struct {
	buf     [quant.MaxParts][]byte // for parts that cannot be viewed in place
	windows [quant.MaxParts][]byte
	files   [quant.MaxParts]*mmap.File
}

// takeScratch returns scratch for so many workers: what reading without a
// mapping needs is some MiB each, and is used again.
func (st *Store) takeScratch(workers int) []*scratch {
	list := make([]*scratch, workers)
	for i := range list {
		if s, ok := st.scratch.Get().(*scratch); ok {
			list[i] = s
		} else {
			list[i] = new(scratch)
		}
	}
	return list
}

func (st *Store) putScratch(list []*scratch) {
	for _, s := range list {
		s.windows, s.files = [quant.MaxParts][]byte{}, [quant.MaxParts]*mmap.File{}
		st.scratch.Put(s)
	}
}

func (s *scratch) decodeRange(ctx context.Context, j *job, lo, hi int64) error {
	n := j.r.dec.Parts()
	for p := range n {
		s.files[p] = j.r.parts[p].shard.file
	}
	var failed error
	fault := mmap.Guard(s.files[:n], func() { failed = s.decode(ctx, j, lo, hi, n) })
	if fault != nil {
		failed = fault
	}
	return rule.Locate(failed, s.files[0].Path(), j.t.name)
}

func (s *scratch) decode(ctx context.Context, j *job, lo, hi int64, parts int) error {
	for p := range parts {
		off, n := j.r.dec.Span(p, lo, hi)
		w, err := j.r.parts[p].window(ctx, off, n, &s.buf[p])
		if err != nil {
			return err
		}
		s.windows[p] = w
	}
	dst := j.dst[j.offset(lo):j.offset(hi)]
	if j.fresh {
		cache.Populate(dst)
	}
	j.r.dec.Decode(dst, j.dt, lo, hi, s.windows[:parts], j.write())
	return nil
}

// offset is where element i starts in dst, in bytes.
func (j *job) offset(i int64) int64 { return (i - j.lo) * int64(j.dt.Bits()) / 8 }

// write chooses the store that suits the destination.
func (j *job) write() quant.Write {
	switch {
	case j.tile, j.fresh:
		return quant.Cached
	case len(j.dst) >= quant.StreamFrom:
		return quant.Stream
	}
	return quant.Cached
}

// stillWhole is verify for all jobs with one look at each file, as long as they
// lie in files one after the other and nothing is wrong. false proves nothing.
func stillWhole(jobs []job) bool {
	var sh *shard
	var end int64
	for i := range jobs {
		j := &jobs[i]
		for p := range j.r.dec.Parts() {
			e := j.r.parts[p]
			if e.view != nil {
				return false
			}
			if e.shard != sh {
				if sh != nil && sh.file.Check(end) != nil {
					return false
				}
				sh, end = e.shard, 0
			}
			off, n := j.r.dec.Span(p, j.lo, j.hi)
			end = max(end, e.off+off+n)
		}
	}
	return sh == nil || sh.file.Check(end) == nil
}

// verify checks that every part's file still reaches the end of the bytes that
// the job's range needed.
func (j *job) verify() error {
	for p := range j.r.dec.Parts() {
		e := j.r.parts[p]
		off, n := j.r.dec.Span(p, j.lo, j.hi)
		if err := e.check(off, n); err != nil {
			return rule.Locate(err, e.shard.file.Path(), j.t.name)
		}
	}
	return nil
}

// dropPages gives the page cache of the job's source bytes back. It is advice:
// failing to give it changes nothing for the caller.
func (j *job) dropPages() {
	for p := range j.r.dec.Parts() {
		e := j.r.parts[p]
		if off, n := e.source(j.r.dec.Span(p, j.lo, j.hi)); n > 0 {
			_ = e.shard.file.Advise(mmap.DontNeed, off, n)
		}
	}
}
