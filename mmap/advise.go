package mmap

import "os"

// Advice tells the kernel how pages are about to be used.
type Advice uint32

const (
	// WillNeed starts reading the pages of the range, without waiting.
	WillNeed Advice = iota + 1
	// DontNeed gives back the pages that lie wholly inside the range: out of
	// this process's memory first, then out of the page cache, which keeps
	// pages that are still mapped. The bytes can be read again at any time.
	DontNeed
	// Random turns read-ahead off, for the whole file.
	Random
	// Sequential reads far ahead, for the whole file.
	Sequential
)

// CanAdvise reports whether Advise does anything for this file on this system.
func (f *File) CanAdvise() bool {
	return f.files != nil && f.size > 0 && (haveFadvise || haveMadvise && f.data != nil)
}

// Advise gives advice about the n bytes at off. Random and Sequential are
// always about the whole file: for a part, the kernel would have to split the
// mapping in two, and the number of mappings is limited. Where CanAdvise is
// false it only checks the range.
func (f *File) Advise(a Advice, off, n int64) error {
	if err := f.within(off, n); err != nil {
		return err
	}
	if !f.CanAdvise() {
		return nil
	}
	lo, hi := f.pages(a, off, n)
	if lo >= hi {
		return nil
	}
	if f.data != nil {
		if err := madvise(f.data[lo:hi], a); err != nil {
			return f.fail(lo, err)
		}
		// The descriptor's advice is about reads by descriptor. Only the page
		// cache has it in common with the mapping.
		if a != DontNeed {
			return nil
		}
	}
	if !haveFadvise {
		return nil
	}
	return f.fail(lo, f.adviseDescriptor(a, lo, hi-lo))
}

// pages is the range that the advice is given for: whole pages, except that the
// last one of the file counts as whole. Pages shared with a neighbour are given
// back by neither.
func (f *File) pages(a Advice, off, n int64) (lo, hi int64) {
	end := off + n
	switch a {
	case Random, Sequential:
		return 0, f.size
	case DontNeed:
		lo = (off + pageSize - 1) / pageSize * pageSize
		if end < f.size {
			end = end / pageSize * pageSize
		}
		return lo, end
	}
	return off / pageSize * pageSize, end
}

func (f *File) adviseDescriptor(a Advice, off, n int64) error {
	if a == Random || a == Sequential {
		f.pattern.Store(uint32(a))
	}
	d, err := f.files.acquire(f)
	if err != nil {
		return err
	}
	defer f.files.release(d)
	return fadvise(d.File, a, off, n)
}

// adviseAgain gives a reopened descriptor the pattern that the closed one had.
// Advice that fails costs speed only, and the first failure was reported.
func (f *File) adviseAgain(file *os.File) {
	if a := Advice(f.pattern.Load()); a != 0 {
		_ = fadvise(file, a, 0, f.size)
	}
}
