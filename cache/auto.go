package cache

// auto follows whichever policy would do best. It ranks the idle entries by all
// of them, simulates each by keys and sizes alone over the same requests, and
// evicts as the one says whose simulation had to decode the fewest bytes lately.
type auto[K comparable] struct {
	ranks   []ranking[K]
	shadows []*shadow[K]
	active  int
	budget  int64
	sweep   *sweep[K] // one of the ranks: it knows how many keys there are
}

// margin is by how much another policy must be better to take over: changing
// costs, because what is in the cache was kept for the old one.
const margin = 0.95

func newAuto[K comparable]() *auto[K] {
	s := newSweep[K]()
	return &auto[K]{
		ranks: []ranking[K]{newLRU[K](), s, newTwoQ[K]()},
		shadows: []*shadow[K]{
			newShadow[K](newLRU[K]()),
			newShadow[K](newSweep[K]()),
			newShadow[K](newTwoQ[K]()),
		},
		sweep: s,
	}
}

func (a *auto[K]) access(k K, size int64) {
	for _, r := range a.ranks {
		r.access(k, size)
	}
	// "Lately" is about one pass: as many requests as there are keys.
	keep := 1 - 1/float64(max(64, len(a.sweep.nodes)))
	best := a.active
	for i, s := range a.shadows {
		s.access(k, size, a.budget, keep)
		if s.cost < a.shadows[best].cost {
			best = i
		}
	}
	if a.shadows[best].cost < margin*a.shadows[a.active].cost {
		a.active = best
	}
}

func (a *auto[K]) idle(k K, size int64) {
	for _, r := range a.ranks {
		r.idle(k, size)
	}
}

func (a *auto[K]) worst() (K, bool) { return a.ranks[a.active].worst() }

func (a *auto[K]) below(x, y K) bool { return a.ranks[a.active].below(x, y) }

func (a *auto[K]) remove(k K, why reason) {
	for _, r := range a.ranks {
		r.remove(k, why)
	}
}

func (a *auto[K]) forget(match func(K) bool) {
	for _, r := range a.ranks {
		r.forget(match)
	}
	for _, s := range a.shadows {
		s.forget(match)
	}
}

func (a *auto[K]) resize(budget int64) {
	a.budget = budget
	for _, s := range a.shadows {
		s.fit(0, budget)
	}
}

// shadow is a cache without contents, in which one key is leased at a time.
type shadow[K comparable] struct {
	rank  ranking[K]
	sizes map[K]int64
	bytes int64
	cost  float64 // bytes that had to be decoded, the older the less they count
}

func newShadow[K comparable](r ranking[K]) *shadow[K] {
	return &shadow[K]{rank: r, sizes: map[K]int64{}}
}

func (s *shadow[K]) access(k K, size, budget int64, keep float64) {
	s.cost *= keep
	s.rank.access(k, size)
	if _, ok := s.sizes[k]; !ok {
		s.cost += float64(size)
		if size > budget {
			return
		}
		s.fit(size, budget)
		s.sizes[k] = size
		s.bytes += size
	}
	s.rank.idle(k, size)
}

// fit evicts until size more bytes fit the budget.
func (s *shadow[K]) fit(size, budget int64) {
	for s.bytes+size > budget {
		k, ok := s.rank.worst()
		if !ok {
			return
		}
		s.rank.remove(k, evicted)
		s.bytes -= s.sizes[k]
		delete(s.sizes, k)
	}
}

func (s *shadow[K]) forget(match func(K) bool) {
	s.rank.forget(match)
	for k, size := range s.sizes {
		if match(k) {
			s.bytes -= size
			delete(s.sizes, k)
		}
	}
}
