package cache

import "slices"

// arena keeps the regions that are mapped but not in use, and the slabs. It
// does the arithmetic of memory only: the cache charges what it is told, and
// maps and unmaps outside the lock.
type arena struct {
	free      []*region // mapped, in use by nobody, by increasing capacity
	freeBytes int64
	slabs     slabs
}

// demand is what a list of sizes asks of an arena.
type demand struct {
	whole int64 // bytes of whole regions
	small []classCount
}

type classCount struct{ class, n int64 }

func demandOf(sizes []int64) demand {
	var d demand
	for _, n := range sizes {
		switch {
		case n == 0:
		case n >= smallSize:
			d.whole = addSizes(d.whole, wholeCapacity(min(n, maxSize)))
		default:
			d.addSmall(classOf(n))
		}
	}
	return d
}

func (d *demand) addSmall(class int64) {
	for i := range d.small {
		if d.small[i].class == class {
			d.small[i].n++
			return
		}
	}
	d.small = append(d.small, classCount{class, 1})
}

// alone is the number of bytes that the demand takes in an empty arena.
func (d demand) alone(budget int64) int64 {
	return (&arena{}).need(d, budget)
}

// need is the number of bytes of regions, free ones or new, that the demand
// takes beyond those in use. It is exact but for the slack of reused regions.
func (a *arena) need(d demand, budget int64) int64 {
	n := d.whole
	for _, s := range d.small {
		missing := s.n - a.slabs.vacant(s.class)
		if missing <= 0 {
			continue
		}
		capacity := slabCapacity(s.class, budget)
		cells := capacity / s.class
		n = addSizes(n, (missing+cells-1)/cells*capacity)
	}
	return n
}

// take returns a block for each size. Regions are reused where one fits;
// the others are new, and take returns their total capacity. spare is by how
// much the regions may exceed need() in sum.
func (a *arena) take(sizes []int64, spare, budget int64) (blocks []*block, added int64) {
	whole := func(n, want int64) *region {
		r := a.fit(n, want, &spare)
		if r == nil {
			r = &region{capacity: want}
			added += want
		}
		return r
	}
	blocks = make([]*block, len(sizes))
	for i, n := range sizes {
		switch {
		case n == 0:
			blocks[i] = &block{}
		case n >= smallSize:
			r := whole(n, wholeCapacity(n))
			blocks[i] = &block{region: r, size: n, capacity: r.capacity}
		default:
			class := classOf(n)
			if a.slabs.vacant(class) == 0 {
				capacity := slabCapacity(class, budget)
				a.slabs.add(whole(capacity, capacity), class)
			}
			blocks[i] = a.slabs.take(class, n)
		}
	}
	return blocks, added
}

// fit takes out the smallest free region for n bytes if its slack is at most an
// eighth of n, and not more than spare above what a new region would take.
func (a *arena) fit(n, want int64, spare *int64) *region {
	i, _ := slices.BinarySearchFunc(a.free, n, byCapacity)
	if i == len(a.free) {
		return nil
	}
	r := a.free[i]
	slack := r.capacity - want
	if r.capacity-n > n/8 && slack > 0 || slack > *spare {
		return nil
	}
	*spare -= max(slack, 0)
	a.free = slices.Delete(a.free, i, i+1)
	a.freeBytes -= r.capacity
	return r
}

// put takes a block back. It returns its region where that is not kept: a
// private one, or one that was never mapped.
func (a *arena) put(b *block) (gone *region) {
	b.scrub()
	r := b.region
	if b.slab != nil {
		r = a.slabs.put(b)
	}
	if r == nil {
		return nil
	}
	if r.private || !r.mapped() {
		return r
	}
	r.used = true
	i, _ := slices.BinarySearchFunc(a.free, r.capacity, byCapacity)
	a.free = slices.Insert(a.free, i, r)
	a.freeBytes += r.capacity
	return nil
}

// trim takes out the largest free region, or returns nil.
func (a *arena) trim() *region {
	last := len(a.free) - 1
	if last < 0 {
		return nil
	}
	r := a.free[last]
	a.free[last] = nil
	a.free = a.free[:last]
	a.freeBytes -= r.capacity
	return r
}

func byCapacity(r *region, n int64) int {
	switch {
	case r.capacity < n:
		return -1
	case r.capacity > n:
		return 1
	}
	return 0
}

// addSizes adds sizes that a file may have made up; the sum stays at maxSize.
func addSizes(a, b int64) int64 {
	if a > maxSize-b {
		return maxSize
	}
	return a + b
}
