package cache

import "github.com/hashicorp/golang-lru/v2/simplelru"

// twoQ is the 2Q of Johnson and Shasha (1994), by bytes: young entries wait in a
// first-in first-out queue of about a quarter of what is ranked. Who comes
// again after it had to leave that queue, while its ghost is remembered, joins
// the main list, which is LRU. Accesses while an entry is young do not count:
// they belong to the same use.
type twoQ[K comparable] struct {
	young, main, ghosts queue[K]
	// away has the keys of main that are leased and were in the way of an
	// eviction.
	away map[K]struct{}
}

// queue is a list of keys, oldest first, that knows its bytes.
type queue[K comparable] struct {
	list  *simplelru.LRU[K, int64]
	bytes int64
}

func (q *queue[K]) add(k K, size int64) {
	q.list.Add(k, size)
	q.bytes += size
}

// remove takes k out and returns its size, if it is there.
func (q *queue[K]) remove(k K) (size int64, ok bool) {
	size, ok = q.list.Peek(k)
	if ok {
		q.list.Remove(k)
		q.bytes -= size
	}
	return size, ok
}

func (q *queue[K]) forget(match func(K) bool) {
	for _, k := range q.list.Keys() {
		if match(k) {
			q.remove(k)
		}
	}
}

func newTwoQ[K comparable]() *twoQ[K] {
	return &twoQ[K]{
		young:  queue[K]{list: newList[K]()},
		main:   queue[K]{list: newList[K]()},
		ghosts: queue[K]{list: newList[K]()},
		away:   map[K]struct{}{},
	}
}

func (q *twoQ[K]) access(K, int64) {}

func (q *twoQ[K]) resize(int64) {}

func (q *twoQ[K]) idle(k K, size int64) {
	if _, ok := q.main.list.Get(k); ok || q.young.list.Contains(k) {
		return
	}
	_, again := q.ghosts.remove(k)
	_, back := q.away[k]
	delete(q.away, k)
	if again || back {
		q.main.add(k, size)
	} else {
		q.young.add(k, size)
	}
}

func (q *twoQ[K]) worst() (K, bool) {
	first, second := &q.young, &q.main
	if q.young.bytes <= (q.young.bytes+q.main.bytes)/4 {
		first, second = second, first
	}
	k, _, ok := first.list.GetOldest()
	if !ok {
		k, _, ok = second.list.GetOldest()
	}
	return k, ok
}

func (q *twoQ[K]) below(K, K) bool { return true }

func (q *twoQ[K]) remove(k K, why reason) {
	delete(q.away, k)
	if _, ok := q.main.remove(k); ok {
		if why == inUse {
			q.away[k] = struct{}{}
		}
		return
	}
	size, ok := q.young.remove(k)
	if !ok || why != evicted {
		return
	}
	// Ghosts reach back half as far as what is kept.
	limit := (q.young.bytes + q.main.bytes + size) / 2
	q.ghosts.add(k, size)
	for q.ghosts.bytes > limit {
		old, _, _ := q.ghosts.list.GetOldest()
		q.ghosts.remove(old)
	}
}

func (q *twoQ[K]) forget(match func(K) bool) {
	q.young.forget(match)
	q.main.forget(match)
	q.ghosts.forget(match)
	for k := range q.away {
		if match(k) {
			delete(q.away, k)
		}
	}
}
