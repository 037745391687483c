package store

import (
	"context"

	"nibble/cache"
	"nibble/internal/rule"
	"nibble/mmap"
	"nibble/quant"
)

// decode runs jobs from one queue, and then makes sure that the files still
// reach as far as was read: bytes behind the end of a file that shrank read as
// zeros up to the end of the page, without a fault.
func (st *Store) decode(ctx context.Context, jobs []job) error {
	for i := range jobs {
		// One worker goes through tiles in order, which the system sees by itself.
		jobs[i].cold = !jobs[i].tile && st.cold(jobs[i].t)
	}
	b := newBatch(jobs)
	workers := min(b.workers(), st.pool.Workers(), max(b.len(), 1))
	scratch := st.takeScratch(workers)
	defer st.putScratch(scratch)
	err := st.pool.Run(ctx, b.len(), workers, func(worker, i int) error {
		n, lo, hi := b.at(i)
		for p := range b.ahead(i) {
			p.fetch()
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
		if jobs[i].whole() {
			jobs[i].t.whole.Store(true)
		}
		if st.cfg.SourcePages == "drop" {
			jobs[i].dropPages()
		}
	}
	return nil
}

// cold reports whether the source of t may have to come from the disk.
func (st *Store) cold(t *Tensor) bool { return st.cfg.SourcePages == "drop" || !t.warm.Load() }

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

// whole reports whether the job reads all of the tensor: every element, and not
// just the codes, as for Raw.
func (j *job) whole() bool {
	return j.lo == 0 && j.hi == j.r.dec.Numel() && j.r == j.t.res.Load()
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
