package cache

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

const page = 4 << 10

func TestCapacities(t *testing.T) {
	if pageSize != page {
		t.Skip("the figures are for pages of 4 KiB")
	}
	for _, tt := range []struct{ size, budget, want int64 }{
		{0, 1 << 30, 0},
		{1, 1 << 30, 64 << 10},               // one slab
		{1, 128 << 10, 8 << 10},              // a sixteenth of the budget
		{1, 0, page},                         // never less than a page
		{20_000, 1 << 30, 60 << 10},          // three cells of 20,032
		{20_000, 64 << 10, 20 << 10},         // one cell
		{64<<10 - 1, 1 << 30, 64 << 10},      // the largest class
		{64 << 10, 1 << 30, 64 << 10},        // whole pages from here
		{64<<10 + 1, 1 << 30, 68 << 10},      //
		{4<<20 - 1, 1 << 30, 4 << 20},        //
		{4 << 20, 1 << 30, 4 << 20},          // multiples of 64 KiB from here
		{4<<20 + 1, 1 << 30, 4<<20 + 64<<10}, //
		{1<<63 - 1, 1 << 30, maxSize},        // a size that a file made up
	} {
		if got := demandOf([]int64{tt.size}).alone(tt.budget); got != tt.want {
			t.Errorf("%d bytes under a budget of %d take %d, want %d", tt.size, tt.budget, got, tt.want)
		}
	}
	if got := demandOf([]int64{1<<63 - 1, 1<<63 - 1, 5}).alone(1 << 30); got != maxSize {
		t.Errorf("made-up sizes add up to %d, want them capped at %d", got, int64(maxSize))
	}
}

// A free region is reused when it is at most an eighth too large.
func TestFit(t *testing.T) {
	for _, tt := range []struct {
		free, size, spare int64
		reuse             bool
	}{
		{800 << 10, 800 << 10, 0, true},
		{800 << 10, 800<<10 - 5, 0, true},
		{900 << 10, 800 << 10, 1 << 20, true},       // 12.5 %
		{900<<10 + page, 800 << 10, 1 << 20, false}, // above
		{900 << 10, 800 << 10, 100<<10 - 1, false},  // the budget has no room for the slack
		{796 << 10, 800 << 10, 1 << 20, false},      // too small
		{68 << 10, 64<<10 + 1, 0, true},             // a new one would be as large
		{4<<20 + 64<<10, 4<<20 + 1, 0, true},        //
	} {
		a := arena{free: []*region{{capacity: tt.free}}, freeBytes: tt.free}
		spare := tt.spare
		r := a.fit(tt.size, wholeCapacity(tt.size), &spare)
		if (r != nil) != tt.reuse {
			t.Errorf("a free region of %d for %d bytes, spare %d: reused %v, want %v", tt.free, tt.size, tt.spare, r != nil, tt.reuse)
		}
		if used := tt.spare - spare; tt.reuse && used != tt.free-wholeCapacity(tt.size) {
			t.Errorf("a free region of %d for %d bytes takes %d of the spare", tt.free, tt.size, used)
		}
	}
}

func TestFitTakesTheSmallest(t *testing.T) {
	a := arena{slabs: slabs{}}
	for _, n := range []int64{900, 800, 848, 2000} {
		blocks, _ := a.take([]int64{n << 10}, 0, 1<<30)
		if _, err := blocks[0].bytes(); err != nil {
			t.Fatal(err)
		}
		defer blocks[0].region.unmap()
		a.put(blocks[0])
	}
	spare := int64(1 << 30)
	if r := a.fit(810<<10, 812<<10, &spare); r == nil || r.capacity != 848<<10 {
		t.Errorf("810 KiB went to %+v, want the region of 848 KiB", r)
	}
}

// need foretells exactly what take takes, whatever was there before.
func TestNeedIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := arena{slabs: slabs{}}
		budget := rapid.Int64Range(0, 4<<20).Draw(t, "budget")
		size := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 70<<10), rapid.Int64Range(64<<10, 5<<20))
		var live []*block
		var used int64
		defer func() {
			for _, b := range live {
				if b.region != nil {
					b.region.unmap()
				}
			}
			for _, r := range a.free {
				r.unmap()
			}
		}()
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for len(live) > 0 && rapid.Bool().Draw(t, "free one") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				if r := a.put(live[i]); r != nil {
					used -= r.capacity
				}
				live = append(live[:i], live[i+1:]...)
			}
			sizes := rapid.SliceOfN(size, 1, 6).Draw(t, "sizes")
			inUse := used - a.freeBytes
			need := a.need(demandOf(sizes), budget)
			blocks, added := a.take(sizes, 0, budget) // no slack: reuse must be exact, too
			used += added
			if got := used - a.freeBytes - inUse; got != need {
				t.Fatalf("%v took %d bytes, need said %d", sizes, got, need)
			}
			for i, b := range blocks {
				if b.size != sizes[i] || b.capacity < b.size {
					t.Fatalf("a block of %d for %d bytes", b.capacity, sizes[i])
				}
				mem, err := b.bytes()
				if err != nil {
					t.Fatal(err)
				}
				if int64(len(mem)) != sizes[i] || cap(mem) != len(mem) {
					t.Fatalf("%d bytes, capacity %d, for %d", len(mem), cap(mem), sizes[i])
				}
				if p := uintptr(unsafe.Pointer(unsafe.SliceData(mem))); b.region != nil && p%align != 0 {
					t.Fatalf("a buffer of %d starts at %#x, not a multiple of %d", sizes[i], p, align)
				}
			}
			live = append(live, blocks...)
			apart(t, live)
		}
		for _, b := range live {
			if r := a.put(b); r != nil {
				used -= r.capacity
			}
		}
		live = nil
		if used != a.freeBytes {
			t.Fatalf("all blocks are back: %d bytes charged, %d free", used, a.freeBytes)
		}
		for class, sh := range a.slabs {
			if len(sh.open) != 0 || sh.cells != 0 {
				t.Fatalf("all cells are back, class %d still has slabs", class)
			}
		}
	})
}

// apart checks that no two blocks share a byte.
func apart(t *rapid.T, blocks []*block) {
	for i, a := range blocks {
		for _, b := range blocks[:i] {
			if a.region != nil && a.region == b.region && a.off < b.off+b.capacity && b.off < a.off+a.capacity {
				t.Fatalf("blocks overlap: %d+%d and %d+%d", a.off, a.capacity, b.off, b.capacity)
			}
		}
	}
}

func TestPopulateAnyChunk(t *testing.T) {
	mem, err := mapAnon(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapAnon(mem)
	for _, c := range [][2]int{{0, 0}, {0, 1}, {5, 6}, {4095, 4097}, {100, 300_000}, {300_000, 1 << 20}} {
		Populate(mem[c[0]:c[1]])
	}
	Populate(nil)
	for i, b := range mem {
		if b != 0 {
			t.Fatalf("Populate wrote to byte %d", i)
		}
	}
}

func TestUnmappableSize(t *testing.T) {
	r := &region{capacity: maxSize}
	if _, err := r.bytes(); err == nil {
		t.Error("2^62 bytes were mapped")
	}
	r.unmap()
}
