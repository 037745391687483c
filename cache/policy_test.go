package cache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParsePolicy(t *testing.T) {
	for _, p := range policies() {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v reads back as %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("mru"); err == nil || !strings.Contains(err.Error(), `"lru" "sweep" "2q" "auto"`) {
		t.Errorf("%v, want an error that names the policies", err)
	}
	if s := Policy(99).String(); s != "policy(99)" {
		t.Errorf("an unknown policy prints as %s", s)
	}
}

// Whatever the policy: what is ranked can be named, each key once, and nothing
// else.
func TestRankingIsASet(t *testing.T) {
	for _, p := range policies() {
		t.Run(p.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := newRanking[int](p)
				r.resize(500)
				ranked := map[int]bool{}
				leave := func(k int, why reason) {
					r.remove(k, why)
					delete(ranked, k)
				}
				key := rapid.IntRange(0, 9)
				t.Repeat(map[string]func(*rapid.T){
					"": func(t *rapid.T) {
						k, ok := r.worst()
						if ok != (len(ranked) > 0) || ok && !ranked[k] {
							t.Fatalf("worst is %d, %v; ranked are %v", k, ok, ranked)
						}
					},
					"access": func(t *rapid.T) { r.access(key.Draw(t, "key"), 100) },
					"use": func(t *rapid.T) {
						k := key.Draw(t, "key")
						r.access(k, 100)
						r.idle(k, 100)
						ranked[k] = true
					},
					"ahead": func(t *rapid.T) { // by prefetch: no access
						k := key.Draw(t, "key")
						r.idle(k, 100)
						ranked[k] = true
					},
					"below": func(t *rapid.T) {
						if k, ok := r.worst(); ok {
							r.below(k, key.Draw(t, "key"))
						}
					},
					"evict": func(t *rapid.T) {
						if k, ok := r.worst(); ok {
							leave(k, evicted)
						}
					},
					"drop": func(t *rapid.T) { leave(key.Draw(t, "key"), dropped) },
					"lease": func(t *rapid.T) {
						if k, ok := r.worst(); ok {
							leave(k, inUse)
						}
					},
					"forget": func(t *rapid.T) {
						n := rapid.IntRange(2, 5).Draw(t, "one in")
						r.forget(func(k int) bool { return k%n == 0 })
						for k := range ranked {
							if k%n == 0 {
								delete(ranked, k)
							}
						}
					},
					"resize": func(t *rapid.T) { r.resize(rapid.Int64Range(0, 1000).Draw(t, "budget")) },
				})
				for n := len(ranked); n > 0; n-- {
					k, _ := r.worst()
					if !ranked[k] {
						t.Fatalf("%d is named, but not ranked (any more)", k)
					}
					leave(k, evicted)
				}
				if k, ok := r.worst(); ok {
					t.Fatalf("%d is left", k)
				}
			})
		})
	}
}

// simulated is a cache for room outputs of one byte, used by somebody who keeps
// one lease at a time.
type simulated struct {
	ranking[int]
	room int
	kept map[int]bool
}

func simulate(p Policy, room int) *simulated {
	s := &simulated{newRanking[int](p), room, map[int]bool{}}
	s.resize(int64(room))
	return s
}

// use asks for k and reports whether it was there.
func (s *simulated) use(k int) (hit bool) {
	s.access(k, 1)
	hit = s.kept[k]
	if !hit && len(s.kept) == s.room {
		v, _ := s.worst()
		s.remove(v, evicted)
		delete(s.kept, v)
	}
	s.kept[k] = true
	s.idle(k, 1)
	return hit
}

// run returns the hits over a list of keys.
func (s *simulated) run(keys []int) (hits int) {
	for _, k := range keys {
		if s.use(k) {
			hits++
		}
	}
	return hits
}

func upTo(n int) []int {
	keys := make([]int, n)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

// Over equal passes LRU hits nothing. Sweep knows the order early in the second
// and from the third on keeps as much as anybody could: all but one place, which
// each tensor in turn needs.
func TestSweepLearnsACycle(t *testing.T) {
	const n, room = 100, 40
	pass := upTo(n)
	lru, sweep := simulate(LRU, room), simulate(Sweep, room)
	for i := range 10 {
		l, s := lru.run(pass), sweep.run(pass)
		if l != 0 {
			t.Errorf("pass %d: lru has %d hits", i, l)
		}
		if i >= 2 && s < room-2 {
			t.Errorf("pass %d: sweep has %d hits, %d are possible", i, s, room-1)
		}
	}
}

// The place in the past is found again after an excursion, after left-out keys,
// and when another key stands in for one.
func TestSweepFindsItsPlaceAgain(t *testing.T) {
	const n, room = 100, 50
	s := simulate(Sweep, room)
	pass := upTo(n)
	for range 4 {
		s.run(pass)
	}
	for name, change := range map[string]func() []int{
		"excursion": func() []int {
			return append(append(append([]int{}, pass[:50]...), 200, 201, 202, 203, 204), pass[50:]...)
		},
		"left out":      func() []int { return append(append([]int{}, pass[:30]...), pass[40:]...) },
		"another key":   func() []int { q := upTo(n); q[50] = 300; return q },
		"from the half": func() []int { return append(append([]int{}, pass[50:]...), pass[:50]...) },
	} {
		s.run(change())
		s.run(pass)
		if hits := s.run(pass); hits < room-5 {
			t.Errorf("%s: %d hits in the second pass after it, out of %d possible", name, hits, room-1)
		}
	}
}

// A key that is used far more often than the history of one key reaches is kept.
func TestSweepKeepsWhatIsUsedAllTheTime(t *testing.T) {
	s := simulate(Sweep, 20)
	var pass []int
	for k := range 100 {
		pass = append(pass, 1000, k)
	}
	s.run(pass)
	s.run(pass)
	for i, k := range pass {
		if hit := s.use(k); k == 1000 && !hit {
			t.Fatalf("access %d: the key of every other access was evicted", i)
		}
	}
}

// The next use of such a key counts as near, although none of the few positions
// that are remembered of it lies just after the place.
func TestSweepRanksFrequentKeysNear(t *testing.T) {
	s := simulate(Sweep, 200)
	var pass []int
	for k := range 100 {
		pass = append(pass, 1000, k)
	}
	for range 3 {
		s.run(pass)
	}
	s.run(pass[:20]) // next: 1000, 10, 1000, 11, ...
	if s.below(1000, 50) {
		t.Error("a key that comes every other time ranks below one that comes in 80")
	}
}

// Keys that are expected and do not come do not stay for ever in the places of
// those that do.
func TestSweepGivesUpOnKeysThatStayAway(t *testing.T) {
	const room = 40
	s := simulate(Sweep, room)
	fresh, hits := 1000, 0
	for pass := range 30 {
		for k := range 99 {
			if k%3 == 0 {
				fresh++
				s.use(fresh) // never again
			} else if s.use(k) && pass >= 20 {
				hits++
			}
		}
	}
	if hits < 10*room/2 {
		t.Errorf("%d hits a pass on 66 steady keys with room for %d", hits/10, room)
	}
}

// What is remembered is bounded, however many keys come by.
func TestPoliciesForgetOldKeys(t *testing.T) {
	s := simulate(Sweep, 10)
	for k := range 3 * pastMost {
		s.use(k)
	}
	if n := len(s.ranking.(*sweep[int]).nodes); n > pastMost+10 {
		t.Errorf("sweep remembers %d keys, the limit is %d", n, pastMost+10)
	}
	q := simulate(TwoQ, 10)
	for k := range 10_000 {
		q.use(k)
	}
	if n := q.ranking.(*twoQ[int]).ghosts.list.Len(); n > 5 {
		t.Errorf("2q remembers %d ghosts of ten outputs", n)
	}
}

// In 2Q, keys that come once leave those alone that came again.
func TestTwoQKeepsTheWorkingSet(t *testing.T) {
	q := simulate(TwoQ, 12)
	r := rand.New(rand.NewPCG(1, 1))
	hits := 0
	for i := range 4000 {
		if q.use(r.IntN(6)) && i > 100 {
			hits++
		}
		q.use(1000 + i) // a scan
		q.use(1_000_000 + i)
	}
	if hits < 3800 {
		t.Errorf("%d hits of 3900 on a working set of half the room beside a scan", hits)
	}
}

// An entry of 2Q's main list that was leased when it should have gone is still
// of the main list afterwards.
func TestTwoQLeasedEntryStaysMain(t *testing.T) {
	q := newTwoQ[int]()
	q.idle(0, 1)
	q.idle(9, 1)
	q.remove(0, evicted) // a ghost
	q.idle(0, 1)         // came again: main
	q.remove(0, inUse)
	q.idle(0, 1)
	if !q.main.list.Contains(0) {
		t.Error("the entry was degraded because it was leased")
	}
	q.remove(0, inUse)
	q.remove(0, dropped)
	if len(q.away) != 0 {
		t.Error("a dropped key is remembered")
	}
}

// Auto changes to sweep for sweeps, and back for a working set.
func TestAutoFollows(t *testing.T) {
	a := simulate(Auto, 40)
	active := func() string {
		return []string{"lru", "sweep", "2q"}[a.ranking.(*auto[int]).active]
	}
	for range 4 {
		a.run(upTo(100))
	}
	if got := active(); got != "sweep" {
		t.Errorf("after four sweeps auto follows %s", got)
	}
	// A working set that moves by one now and then, in random order: recency
	// is all there is to know.
	r := rand.New(rand.NewPCG(1, 1))
	hits := 0
	for i := range 4000 {
		if a.use(1000+i/20+r.IntN(35)) && i > 1000 {
			hits++
		}
	}
	if hits < 2700 {
		t.Errorf("auto has %d hits of 3000 on a working set that fits, following %s", hits, active())
	}
}

// A prefetch under sweep takes the place only of what is needed later.
func TestSweepBelow(t *testing.T) {
	s := simulate(Sweep, 50)
	for range 4 {
		s.run(upTo(100))
	}
	s.run(upTo(10))
	// Next come 10, 11, … Of 777 nothing is known here, so who asks for it
	// ahead is believed.
	for _, k := range []int{5, 11, 12} {
		s.idle(k, 1)
	}
	for _, tt := range []struct {
		a, b int
		want bool
	}{{5, 11, true}, {12, 11, true}, {11, 12, false}, {11, 5, false}, {5, 777, true}} {
		if got := s.below(tt.a, tt.b); got != tt.want {
			t.Errorf("%d ranks below %d: %v", tt.a, tt.b, got)
		}
	}
}

// Through the whole cache: every policy keeps its promises under leases.
func TestPoliciesInTheCache(t *testing.T) {
	for _, p := range policies() {
		c := New[int](Options{Budget: 10 * 64 * kib, Policy: p})
		r := rand.New(rand.NewPCG(1, 1))
		var open []Lease
		for i := range 2000 {
			k := i % 20
			if i > 1000 {
				k = r.IntN(20)
			}
			open = append(open, mustAcquire(t, c, k, 64*kib))
			if len(open) > 5 {
				j := r.IntN(len(open))
				open[j].Release()
				open = append(open[:j], open[j+1:]...)
			}
			if i%300 == 0 {
				c.SetBudget(int64(8+i/300) * 64 * kib)
			}
		}
		for _, l := range open {
			l.Release()
		}
		if s := c.Stats(); s.Hits == 0 || s.Used > s.Budget {
			t.Errorf("%v: %+v", p, s)
		}
		atRest(t, c)
	}
}

// Sweeping by layers with the next one prefetched: nothing is missed any more,
// and what sweep kept is not given up for it.
func TestSweepWithPrefetch(t *testing.T) {
	const layers, perLayer, passes = 20, 3, 10
	c := New[int](Options{Budget: layers * perLayer / 2 * 64 * kib, Policy: Sweep})
	layer := func(l int) (items []Item[int]) {
		for i := range perLayer {
			items = append(items, item(l%layers*perLayer+i, 64*kib))
		}
		return items
	}
	var before Stats
	for pass := range passes {
		if pass == 3 {
			before = c.Stats()
		}
		for l := range layers {
			leases, _, err := c.AcquireMany(t.Context(), layer(l), fill)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Prefetch(t.Context(), layer(l+1), fill); err != nil {
				t.Fatal(err)
			}
			c.Wait(t.Context(), everything)
			for _, l := range leases {
				l.Release()
			}
		}
	}
	s := c.Stats()
	decoded, acquired := s.BytesDecoded-before.BytesDecoded, s.BytesAcquired-before.BytesAcquired
	if n := s.Misses - before.Misses; n != 0 {
		t.Errorf("%d outputs were missed although all were prefetched", n)
	}
	if rate := 1 - float64(decoded)/float64(acquired); rate < 0.4 {
		t.Errorf("the rate is %.2f with room for half and a layer ahead, want at least 0.40", rate)
	}
	atRest(t, c)
}

// What a policy costs for each use, in a sweep over twice what fits.
func BenchmarkRanking(b *testing.B) {
	for _, p := range policies() {
		b.Run(fmt.Sprintf("policy=%v", p), func(b *testing.B) {
			s := simulate(p, 500)
			i := 0
			for b.Loop() {
				s.use(i % 1000)
				i++
			}
		})
	}
}
