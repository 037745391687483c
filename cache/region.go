package cache

import (
	"fmt"
	"math"
	"os"
	"sync"

	"nibble/internal/invariants"
)

const (
	align     = 64       // of every buffer: a cache line, and an AVX-512 register
	smallSize = 64 << 10 // buffers below come from slabs
	hugeSize  = 4 << 20  // buffers from here on ask for huge pages
	hugeUnit  = 64 << 10 // and are multiples of this
	maxSize   = 1 << 62  // larger requests count as this: above every budget
	poison    = 0xdb     // what freed bytes read as under -tags invariants
)

// pageSize is the unit of buffers of whole pages: 4 KiB, or the system's page
// where that is larger.
var pageSize = int64(max(4<<10, os.Getpagesize()))

// region is one piece of memory from the system, charged in full from the
// moment it is planned. It is mapped by the first goroutine that writes to it,
// because mapping is done outside the cache's lock.
type region struct {
	capacity int64
	private  bool // exact and for one lease: never kept for reuse
	used     bool // has been handed out before: its pages are there, and dirty

	mu  sync.Mutex
	mem []byte
}

// bytes returns the region's memory, mapping it on first use.
func (r *region) bytes() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mem != nil {
		return r.mem, nil
	}
	if r.capacity > math.MaxInt {
		return nil, fmt.Errorf("cache: %d bytes are more than this platform can map", r.capacity)
	}
	mem, err := mapAnon(int(r.capacity))
	if err != nil {
		return nil, fmt.Errorf("cache: map %d bytes: %w", r.capacity, err)
	}
	r.mem = mem
	return mem, nil
}

// mapped reports whether the region has memory.
func (r *region) mapped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mem != nil
}

// unmap returns the memory to the system. Nobody may use the region any more.
func (r *region) unmap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mem != nil {
		unmapAnon(r.mem)
		r.mem = nil
	}
}

// block is a buffer: a whole region, or one cell of a slab.
type block struct {
	region   *region
	slab     *slab // nil when the block is the whole region
	off      int64 // in the region
	size     int64 // as requested
	capacity int64 // as charged to the holder
}

// fresh reports whether the block's pages have never been touched.
func (b *block) fresh() bool { return b.slab == nil && b.region != nil && !b.region.used }

// bytes returns the block's memory, exactly size bytes long, mapping its region
// if need be. Called outside the lock.
func (b *block) bytes() ([]byte, error) {
	if b.region == nil {
		return []byte{}, nil
	}
	mem, err := b.region.bytes()
	if err != nil {
		return nil, err
	}
	return mem[b.off : b.off+b.size : b.off+b.size], nil
}

// scrub overwrites a freed block in paranoid builds, so that a slice kept past
// its lease reads as nonsense instead of as the next tensor.
func (b *block) scrub() {
	if !invariants.Enabled || b.region == nil || !b.region.mapped() {
		return
	}
	mem := b.region.mem[b.off : b.off+b.capacity]
	for i := range mem {
		mem[i] = poison
	}
}

// wholeCapacity is the capacity of a region for n bytes: whole pages, and from
// hugeSize on a multiple of hugeUnit.
func wholeCapacity(n int64) int64 {
	if n >= hugeSize {
		return roundUp(n, max(hugeUnit, pageSize))
	}
	return roundUp(n, pageSize)
}

// roundUp returns the least multiple of m, a power of two, that is >= n.
func roundUp(n, m int64) int64 { return (n + m - 1) &^ (m - 1) }
