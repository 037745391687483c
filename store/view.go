package store

import (
	"sync"
	"sync/atomic"

	"nibble/mmap"
)

// viewSlot holds one lease of bytes that lie in a mapping. Slots are reused:
// the generation in a Lease tells whether it still speaks of this use.
type viewSlot struct {
	table *viewTable
	gen   atomic.Uint64 // odd while leased
	file  *mmap.File
	name  string
}

// viewTable keeps the slots of a store's zero-copy leases.
type viewTable struct {
	mu   sync.Mutex
	all  []*viewSlot
	free []*viewSlot
}

// lease pins the mapping of file. ok is false when it is gone.
func (v *viewTable) lease(file *mmap.File, name string) (slot *viewSlot, gen uint64, ok bool) {
	if !file.Retain() {
		return nil, 0, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.free); n > 0 {
		slot, v.free = v.free[n-1], v.free[:n-1]
	} else {
		slot = &viewSlot{table: v}
		v.all = append(v.all, slot)
	}
	slot.file, slot.name = file, name
	return slot, slot.gen.Add(1), true
}

// release ends the lease of generation gen. It reports false when that has
// happened before.
func (s *viewSlot) release(gen uint64) bool {
	if !s.gen.CompareAndSwap(gen, gen+1) {
		return false
	}
	file := s.file
	s.file = nil
	s.table.mu.Lock()
	s.table.free = append(s.table.free, s)
	s.table.mu.Unlock()
	// The last reference unmaps; an error of munmap would be ours alone.
	_ = file.Release()
	return true
}

// open names the tensors whose leases are open.
func (v *viewTable) open() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for _, s := range v.all {
		if s.gen.Load()%2 == 1 {
			names = append(names, s.name)
		}
	}
	return names
}
