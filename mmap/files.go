package mmap

import (
	"errors"
	"math"
	"os"
	"sync"
	"syscall"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"nibble/internal/rule"
)

// minDescriptors is the least number of descriptors kept by default, however
// small the process's own limit is.
const minDescriptors = 16

// Files opens files and bounds how many descriptors they keep open together: a
// checkpoint may have thousands of shards. A descriptor that had to go is opened
// again when it is needed; mappings need none. Files is safe for concurrent use.
type Files struct {
	limit int

	mu     sync.Mutex
	open   *simplelru.LRU[*File, *descriptor] // never larger than limit
	closed bool
}

// descriptor is an open file that its users pin, so that making room for
// another one does not close it under a reader.
type descriptor struct {
	*os.File
	pins    int  // guarded by Files.mu
	dropped bool // guarded by Files.mu; no longer in the LRU: the last user closes it
}

// DefaultDescriptors is a quarter of what the process may have open, and at
// least 16.
func DefaultDescriptors() int { return max(minDescriptors, descriptorLimit()/4) }

// NewFiles returns a Files that keeps at most limit descriptors open, beyond
// those that a call in progress is using. 0 means DefaultDescriptors.
func NewFiles(limit int) *Files {
	if limit <= 0 {
		limit = DefaultDescriptors()
	}
	// The size is never reached; room is made by insert, which has to look at
	// what it removes.
	open, err := simplelru.NewLRU[*File, *descriptor](math.MaxInt, nil)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &Files{limit: limit, open: open}
}

// Close refuses further calls of Open and closes the descriptors that are open.
// Files that are still retained stay readable, with a descriptor of their own
// that their last Release closes. A second Close returns nil.
func (s *Files) Close() error {
	s.mu.Lock()
	s.closed = true
	var idle []*descriptor
	for s.open.Len() > 0 {
		idle = append(idle, s.dropOldest()...)
	}
	s.mu.Unlock()
	return closeAll(idle)
}

// acquire returns f's descriptor, pinned: release must follow. If it has to be
// opened again, the file behind it must be unchanged.
func (s *Files) acquire(f *File) (*descriptor, error) {
	s.mu.Lock()
	d, err := s.pin(f)
	s.mu.Unlock()
	if d != nil || err != nil {
		return d, err
	}
	file, info, err := s.openRegular(f.path)
	if err != nil {
		return nil, err
	}
	if err := f.changed(info); err != nil {
		file.Close()
		return nil, err
	}
	f.adviseAgain(file)
	return s.insert(f, file)
}

// pin returns f's open descriptor, or nil if there is none. It must be called
// with mu held.
func (s *Files) pin(f *File) (*descriptor, error) {
	if f.closed {
		return nil, rule.ErrClosed
	}
	d, ok := s.open.Get(f)
	if !ok {
		return nil, nil
	}
	d.pins++
	return d, nil
}

// insert keeps file, just opened, as f's descriptor and returns it pinned. If
// another goroutine was faster, or f was released meanwhile, file is closed.
func (s *Files) insert(f *File, file *os.File) (*descriptor, error) {
	s.mu.Lock()
	d, err := s.pin(f)
	if d != nil || err != nil {
		s.mu.Unlock()
		file.Close()
		return d, err
	}
	var idle []*descriptor
	for s.open.Len() >= s.limit {
		idle = append(idle, s.dropOldest()...)
	}
	d = &descriptor{File: file, pins: 1}
	s.open.Add(f, d)
	s.mu.Unlock()
	closeAll(idle) // of descriptors that were only read from: nothing can be lost
	return d, nil
}

// release unpins d.
func (s *Files) release(d *descriptor) {
	s.mu.Lock()
	d.pins--
	last := d.dropped && d.pins == 0
	s.mu.Unlock()
	if last {
		d.Close()
	}
}

// forget closes f's descriptor for good.
func (s *Files) forget(f *File) error {
	s.mu.Lock()
	f.closed = true
	var idle []*descriptor
	if d, ok := s.open.Peek(f); ok {
		s.open.Remove(f)
		idle = d.drop()
	}
	s.mu.Unlock()
	return closeAll(idle)
}

// dropOldest takes the descriptor that was not used for longest out of the LRU,
// and returns it if the caller is to close it. It must be called with mu held.
func (s *Files) dropOldest() []*descriptor {
	_, d, ok := s.open.RemoveOldest()
	if !ok {
		return nil
	}
	return d.drop()
}

// drop marks d as gone from the LRU and returns it if nobody is using it.
func (d *descriptor) drop() []*descriptor {
	d.dropped = true
	if d.pins > 0 {
		return nil
	}
	return []*descriptor{d}
}

func closeAll(ds []*descriptor) error {
	var errs []error
	for _, d := range ds {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// makeRoom closes one descriptor after opening failed with err, and reports
// whether it is worth trying again: the limit of the process may be lower than
// ours, or used up by others.
func (s *Files) makeRoom(err error) bool {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return false
	}
	s.mu.Lock()
	some := s.open.Len() > 0
	idle := s.dropOldest()
	s.mu.Unlock()
	closeAll(idle)
	return some
}
