package cache

import "slices"

// slab is a region cut into cells of one class, a multiple of 64 bytes below
// 64 KiB. The whole region is charged for as long as one cell is taken, so a
// slab is small: at most slabSize, less under a small budget.
type slab struct {
	region *region
	class  int64   // bytes in a cell
	free   []int32 // indices of free cells
	cells  int
}

const slabSize = 64 << 10

// classOf returns the class of cells for n bytes, 0 < n < smallSize.
func classOf(n int64) int64 { return roundUp(n, align) }

// slabCapacity is the capacity of a new slab of class under budget: as many
// cells as fit slabSize, but not so many that one slab takes more than a
// sixteenth of the budget; at least one.
func slabCapacity(class, budget int64) int64 {
	cells := max(1, min(slabSize, budget/16)/class)
	return roundUp(cells*class, pageSize)
}

// slabs holds the slabs that have a free cell, by class. Full slabs are known
// to their blocks only; empty ones have given their region back.
type slabs map[int64]*shelf

type shelf struct {
	open  []*slab
	cells int64 // free cells in open
}

// vacant is the number of free cells of class.
func (s slabs) vacant(class int64) int64 {
	if sh := s[class]; sh != nil {
		return sh.cells
	}
	return 0
}

// take returns a cell of class, or nil where no slab has one.
func (s slabs) take(class, n int64) *block {
	sh := s[class]
	if sh == nil || len(sh.open) == 0 {
		return nil
	}
	sl := sh.open[len(sh.open)-1]
	last := len(sl.free) - 1
	cell := sl.free[last]
	sl.free = sl.free[:last]
	sh.cells--
	if last == 0 {
		sh.open = sh.open[:len(sh.open)-1]
	}
	return &block{region: sl.region, slab: sl, off: int64(cell) * class, size: n, capacity: class}
}

// add cuts r into cells of class and offers them.
func (s slabs) add(r *region, class int64) {
	n := int(r.capacity / class)
	sl := &slab{region: r, class: class, cells: n, free: make([]int32, n)}
	for i := range sl.free {
		sl.free[i] = int32(n - 1 - i) // the first cell is taken first
	}
	sh := s[class]
	if sh == nil {
		sh = &shelf{}
		s[class] = sh
	}
	sh.open = append(sh.open, sl)
	sh.cells += int64(n)
}

// put takes a cell back and returns its slab's region when that was the last
// cell in use, else nil.
func (s slabs) put(b *block) *region {
	sl := b.slab
	sh := s[sl.class]
	sl.free = append(sl.free, int32(b.off/sl.class))
	sh.cells++
	if len(sl.free) == 1 {
		sh.open = append(sh.open, sl)
	}
	if len(sl.free) < sl.cells {
		return nil
	}
	i := slices.Index(sh.open, sl)
	sh.open = slices.Delete(sh.open, i, i+1)
	sh.cells -= int64(sl.cells)
	return sl.region
}
