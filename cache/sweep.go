package cache

import (
	"container/heap"
	"math"
)

// sweep expects the future to repeat the past. It keeps the sequence of keys
// that were asked for, finds the place in it that the present repeats, and
// reads the future from there on: an entry's next use is its next occurrence
// after that place. The entry whose next use is furthest goes first, which is
// optimal as long as the guess is right (Belady 1966).
//
// Where nothing repeats, entries rank by time of release, as in lru.
type sweep[K comparable] struct {
	nodes map[K]*node[K]
	past  []*node[K] // the sequence; position p is at p & (len-1)
	now   int64      // position of the next access
	prev  *node[K]   // the access before

	// place is the position that the next access should repeat, if found.
	place  int64
	found  bool
	trust  int // rises with each right guess, falls with each wrong one
	wrong  int // wrong guesses in a row
	synced bool

	order byNextUse[K]
	stale bool // the order was made for another place or mode
}

const (
	pastStart  = 1 << 10 // positions remembered at first,
	pastMost   = 1 << 17 // and at most: longer passes are not learned
	trustOn    = 8       // from here on guesses are followed,
	trustMost  = 32
	wrongMost  = 3 // so many wrong guesses in a row make for a new search
	occurrence = 8 // positions remembered of one key
	followers  = 4 // successors remembered of one key
)

// node is what is known of one key. Nodes outlive their key in the sequence:
// forget takes the key out of them.
type node[K comparable] struct {
	key  K
	last int64 // position when last released

	seen [occurrence]int64 // positions of accesses; the i-th is at i % occurrence
	n    int               // accesses

	next     [followers]follower[K]
	nextFree int

	rank  int64 // the larger, the sooner it goes
	index int   // in the order; -1 when not there
}

// follower says that another key came right after this one, at position at.
type follower[K comparable] struct {
	node *node[K]
	at   int64
}

func newSweep[K comparable]() *sweep[K] {
	return &sweep[K]{nodes: map[K]*node[K]{}, past: make([]*node[K], pastStart)}
}

func (s *sweep[K]) node(k K) *node[K] {
	n := s.nodes[k]
	if n == nil {
		n = &node[K]{key: k, last: s.now, index: -1}
		s.nodes[k] = n
	}
	return n
}

func (s *sweep[K]) access(k K, _ int64) {
	n := s.node(k)
	before := s.place
	s.guess(n)
	s.record(n)
	s.judge()
	s.pass(before)
}

// guess compares n with what was expected and moves the place on.
func (s *sweep[K]) guess(n *node[K]) {
	if s.found {
		if s.at(s.place) == n {
			s.trust = min(s.trust+1, trustMost)
			s.wrong = 0
		} else {
			// Perhaps another key in the same role, such as another
			// expert: what follows is judged by itself.
			s.trust--
			s.wrong++
		}
		s.place++
	}
	if s.found && s.wrong < wrongMost {
		return
	}
	// Search: where did n follow the same key before?
	if at, ok := s.prev.followedBy(n); ok && at+1 != s.place {
		s.place, s.found, s.wrong = at+1, true, 0
		s.stale = true
	}
}

// at is the node at position p, nil where that is not remembered.
func (s *sweep[K]) at(p int64) *node[K] {
	if p < 0 || p >= s.now || p < s.now-int64(len(s.past)) {
		return nil
	}
	return s.past[p&int64(len(s.past)-1)]
}

// record appends n to the sequence.
func (s *sweep[K]) record(n *node[K]) {
	if s.now == int64(len(s.past)) && len(s.past) < pastMost {
		s.past = append(s.past, make([]*node[K], len(s.past))...)
	}
	slot := &s.past[s.now&int64(len(s.past)-1)]
	if old := *slot; old != nil && old != n && old.latest() <= s.now-int64(len(s.past)) {
		s.expire(old)
	}
	*slot = n
	n.seen[n.n%occurrence] = s.now
	n.n++
	s.prev.follow(n, s.now)
	s.prev = n
	s.now++
}

// expire forgets a key whose last access leaves the sequence, unless it is
// ranked: then remove does.
func (s *sweep[K]) expire(n *node[K]) {
	if n.index < 0 && s.nodes[n.key] == n {
		delete(s.nodes, n.key)
	}
}

// judge decides whether guesses are followed.
func (s *sweep[K]) judge() {
	if s.found && (s.trust <= -wrongMost || s.at(s.place) == nil) {
		s.found, s.trust, s.wrong = false, 0, 0
	}
	synced := s.found && (s.trust >= trustOn || s.synced && s.trust > 0)
	if synced != s.synced {
		s.synced, s.stale = synced, true
	}
}

// pass ranks anew what was expected between the place before and now: those
// that did not come are expected at a later time, if at all.
func (s *sweep[K]) pass(before int64) {
	if !s.synced || s.stale {
		return
	}
	for p := before; p < s.place; p++ {
		if n := s.at(p); n != nil && n.index >= 0 {
			n.rank = s.rank(n)
			heap.Fix(&s.order, n.index)
		}
	}
}

// rank is the position of the past at which n is expected next. A key that has
// not come since the place is not expected at all; such keys, and all keys while
// nothing repeats, go by age.
func (s *sweep[K]) rank(n *node[K]) int64 {
	if !s.synced {
		return -n.last
	}
	oldest := max(0, n.n-occurrence)
	for i := oldest; i < n.n; i++ {
		p := n.seen[i%occurrence]
		if p < s.place {
			continue
		}
		if i == oldest && oldest > 0 {
			// It comes so often that its next use is not remembered.
			return s.place + (n.latest()-p)/(occurrence-1)
		}
		return p
	}
	return math.MaxInt64/2 - n.last
}

func (s *sweep[K]) idle(k K, _ int64) {
	n := s.node(k)
	n.last = s.now
	n.rank = s.rank(n)
	if n.index < 0 {
		heap.Push(&s.order, n)
	} else {
		heap.Fix(&s.order, n.index)
	}
}

func (s *sweep[K]) worst() (k K, ok bool) {
	if s.stale {
		for _, n := range s.order {
			n.rank = s.rank(n)
		}
		heap.Init(&s.order)
		s.stale = false
	}
	if len(s.order) == 0 {
		return k, false
	}
	return s.order[0].key, true
}

func (s *sweep[K]) below(a, b K) bool {
	n := s.nodes[b]
	return !s.synced || n == nil || s.rank(s.nodes[a]) > s.rank(n)
}

func (s *sweep[K]) remove(k K, _ reason) {
	n := s.nodes[k]
	if n == nil || n.index < 0 {
		return
	}
	heap.Remove(&s.order, n.index)
	if n.n == 0 || n.latest() < s.now-int64(len(s.past)) {
		delete(s.nodes, k)
	}
}

func (s *sweep[K]) forget(match func(K) bool) {
	for k, n := range s.nodes {
		if !match(k) {
			continue
		}
		if n.index >= 0 {
			heap.Remove(&s.order, n.index)
		}
		delete(s.nodes, k)
		var none K
		n.key = none
	}
}

func (s *sweep[K]) resize(int64) {}

// latest is the position of n's last access.
func (n *node[K]) latest() int64 { return n.seen[(n.n+occurrence-1)%occurrence] }

// follow remembers that other came right after n, at position at.
func (n *node[K]) follow(other *node[K], at int64) {
	if n == nil {
		return
	}
	for i := range n.next {
		if n.next[i].node == other {
			n.next[i].at = at
			return
		}
	}
	n.next[n.nextFree] = follower[K]{other, at}
	n.nextFree = (n.nextFree + 1) % followers
}

// followedBy returns where other last came right after n.
func (n *node[K]) followedBy(other *node[K]) (at int64, ok bool) {
	if n == nil {
		return 0, false
	}
	for i := range n.next {
		if n.next[i].node == other {
			return n.next[i].at, true
		}
	}
	return 0, false
}

// byNextUse is a heap of the ranked nodes, the worst first.
type byNextUse[K comparable] []*node[K]

func (o byNextUse[K]) Len() int           { return len(o) }
func (o byNextUse[K]) Less(i, j int) bool { return o[i].rank > o[j].rank }
func (o byNextUse[K]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

// Push implements heap.Interface.
func (o *byNextUse[K]) Push(x any) {
	n := x.(*node[K])
	n.index = len(*o)
	*o = append(*o, n)
}

// Pop implements heap.Interface.
func (o *byNextUse[K]) Pop() any {
	last := len(*o) - 1
	n := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	n.index = -1
	return n
}
