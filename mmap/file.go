package mmap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync/atomic"

	mmapgo "github.com/edsrzf/mmap-go"

	"nibble/internal/rule"
)

// File is one file, or another source of bytes, of a size fixed when it was
// opened. It starts with one reference, its opener's; the last Release ends it.
// All methods are safe for concurrent use by callers that hold a reference.
type File struct {
	path string
	size int64
	why  string      // why there is no mapping
	data mmapgo.MMap // nil when not mapped

	refs atomic.Int64

	// For a file opened by Files: where its descriptors come from, and what
	// the file was when it was opened.
	files   *Files
	info    fs.FileInfo
	pattern atomic.Uint32 // the Advice that a reopened descriptor needs again
	closed  bool          // guarded by files.mu

	// For NewReaderAt.
	src io.ReaderAt
}

// NewReaderAt makes a File of size bytes from r, with name for its path in
// errors. It is never mapped, and Release does not close r. r must be safe for
// concurrent use, as io.ReaderAt asks. That r has fewer bytes than size shows
// only when it ends a read early.
func NewReaderAt(name string, r io.ReaderAt, size int64) *File {
	f := &File{path: name, size: size, src: r, why: "not a file"}
	f.refs.Store(1)
	return f
}

// Path is the path as it was given to Open.
func (f *File) Path() string { return f.path }

// Size is the number of bytes that the file had when it was opened.
func (f *File) Size() int64 { return f.size }

// Mapped reports whether Window returns slices of a mapping.
func (f *File) Mapped() bool { return f.data != nil }

// Why says why the file is not mapped; it is empty if it is.
func (f *File) Why() string { return f.why }

// Retain takes another reference. It reports false, and takes none, if the
// last one was already released.
func (f *File) Retain() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives back a reference. The last one unmaps and closes the file:
// slices from Window must not be touched from then on. A Release without a
// reference does nothing and returns an error that is rule.ErrClosed.
func (f *File) Release() error {
	for {
		n := f.refs.Load()
		if n == 0 {
			return f.fail(-1, rule.ErrClosed)
		}
		if !f.refs.CompareAndSwap(n, n-1) {
			continue
		}
		if n > 1 || f.files == nil {
			return nil
		}
		return f.fail(-1, errors.Join(f.unmap(), f.files.forget(f)))
	}
}

func (f *File) unmap() error {
	if f.data == nil {
		return nil
	}
	data := f.data // Unmap clears what it is given, and Mapped may be looking
	return data.Unmap()
}

// ReadAt reads from the file's descriptor, never from the mapping, so that a
// file that became shorter is an error and no fault. It follows io.ReaderAt
// within the size at opening: io.EOF means that p goes beyond it. A file that
// ends earlier is a rule.Truncated error at the first byte that is missing.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.fail(-1, fmt.Errorf("read at negative offset %d", off))
	}
	there := p
	if rest := max(0, f.size-off); int64(len(p)) > rest {
		there = p[:rest]
	}
	n, err := f.read(there, off)
	switch {
	case n < len(there):
		return n, f.shortRead(off+int64(n), err)
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// read is ReadAt without the interpretation of what came back.
func (f *File) read(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if f.files == nil {
		return f.src.ReadAt(p, off)
	}
	d, err := f.files.acquire(f)
	if err != nil {
		return 0, err
	}
	defer f.files.release(d)
	return d.ReadAt(p, off)
}

// shortRead is the error for a read that ended at off, before the size at
// opening, with err.
func (f *File) shortRead(off int64, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return f.truncated(off, "truncated: %d bytes when it was opened", f.size)
	}
	return f.fail(off, err)
}

// Window returns the n bytes at off. From a mapped file they are the mapping
// itself: read-only (a write faults), valid while the caller holds a reference,
// and to be read under Guard. Otherwise they are read into *scratch, which is
// replaced by a larger slice if its capacity is below n; they are then the
// caller's, and valid until scratch is used again.
func (f *File) Window(off, n int64, scratch *[]byte) ([]byte, error) {
	if err := f.within(off, n); err != nil {
		return nil, err
	}
	if f.data != nil {
		return f.data[off : off+n : off+n], nil
	}
	if n > math.MaxInt {
		return nil, f.fail(off, fmt.Errorf("%d bytes are more than this system can address", n))
	}
	if int64(cap(*scratch)) < n {
		*scratch = make([]byte, n)
	}
	p := (*scratch)[:n:n]
	if _, err := f.ReadAt(p, off); err != nil {
		return nil, err
	}
	return p, nil
}

// Check asks the file system whether the file still has its first end bytes;
// if not, the error is a rule.Truncated at the first byte that is missing. It
// asks the open descriptor, so it sees the file that is mapped even if another
// now has its name. If the descriptor had been closed for want of room it is
// reopened by name, and anything but the same unchanged file is an error too.
// For a File of NewReaderAt it is always nil.
func (f *File) Check(end int64) error {
	if f.files == nil {
		return nil
	}
	info, err := f.stat()
	if err != nil {
		return err
	}
	if now := info.Size(); now < end {
		return f.truncated(now, "truncated: %d bytes, %d when it was opened", now, f.size)
	}
	return nil
}

// stat is the file as it is now.
func (f *File) stat() (fs.FileInfo, error) {
	d, err := f.files.acquire(f)
	if err != nil {
		return nil, f.fail(-1, err)
	}
	defer f.files.release(d)
	info, err := d.Stat()
	return info, f.fail(-1, err)
}

// changed compares the file as it is now with what it was when it was opened.
// Time of modification counts: a file that was cut and grew back has its old
// size again.
func (f *File) changed(now fs.FileInfo) error {
	switch {
	case !os.SameFile(f.info, now):
		return f.truncated(-1, "replaced by another file while it was open")
	case now.Size() < f.size:
		return f.truncated(now.Size(), "truncated: %d bytes, %d when it was opened", now.Size(), f.size)
	case now.Size() != f.size || !now.ModTime().Equal(f.info.ModTime()):
		return f.truncated(-1, "changed while it was open")
	}
	return nil
}

// within checks that the n bytes at off lie in the file.
func (f *File) within(off, n int64) error {
	if off < 0 || n < 0 || n > f.size-off {
		return f.fail(-1, fmt.Errorf("%d bytes at %d are outside of the file's %d bytes", n, off, f.size))
	}
	return nil
}

// truncated is the error for a file that is no longer what was opened.
func (f *File) truncated(off int64, format string, args ...any) *rule.Error {
	e := rule.New(rule.Truncated, format, args...).At(off)
	e.Path = f.path
	return e
}

// fail is err with the file and the place, unless it has them already.
func (f *File) fail(off int64, err error) error { return located(f.path, off, err) }

// located is err as a *rule.Error. The path that package os puts into its
// errors is taken out, for it would be printed twice.
func located(path string, off int64, err error) error {
	var known *rule.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if named, ok := err.(*fs.PathError); ok {
		err = named.Err
	}
	return &rule.Error{Path: path, Offset: off, Err: err}
}
