package cache

import "fmt"

// Policy names the order in which idle entries are evicted.
type Policy uint8

const (
	// LRU evicts the entry that was released longest ago.
	LRU Policy = iota
	// Sweep learns in which order keys come again and evicts the entry whose
	// next use is furthest. For repeated passes over a model that exceeds the
	// budget, where LRU evicts each entry just before it is needed.
	Sweep
	// TwoQ keeps entries that were asked for once in a short queue, so that a
	// single pass over everything does not push out those in steady use.
	TwoQ
	// Auto simulates the others by keys and sizes and follows the best.
	Auto
)

var policyNames = []string{LRU: "lru", Sweep: "sweep", TwoQ: "2q", Auto: "auto"}

func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// ParsePolicy returns the policy with the given name.
func ParsePolicy(name string) (Policy, error) {
	for p, s := range policyNames {
		if s == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("unknown policy %q (want one of %q)", name, policyNames)
}

// ranking orders the idle entries of a cache. All calls come under the cache's
// lock, so an implementation is plain sequential code.
//
// An entry may be leased while it is ranked: then worst may name it, the cache
// removes it and goes on, and its last release ranks it again. This keeps the
// lists as they are during a hit, which so allocates nothing, and gives the same
// order of victims as taking leased entries out would.
type ranking[K comparable] interface {
	// access says that k was asked for, whether or not it was there.
	access(k K, size int64)
	// idle ranks k, which lost its last lease or came by prefetch. k may be
	// ranked already: then it is ranked anew.
	idle(k K, size int64)
	// worst returns the entry to evict first; false when none is ranked.
	worst() (K, bool)
	// below reports whether the ranked entry a is worth less than b, which is
	// about to be prefetched.
	below(a, b K) bool
	// remove takes k out of the order, if it is there.
	remove(k K, why reason)
	// forget removes every trace of the keys that match.
	forget(match func(K) bool)
	// resize says what the budget is now.
	resize(budget int64)
}

// reason is why an entry leaves the order.
type reason uint8

const (
	evicted reason = iota // for want of bytes: it may come again
	dropped               // its output is no longer wanted
	inUse                 // it is leased, and will be idle again
)

func newRanking[K comparable](p Policy) ranking[K] {
	switch p {
	case Sweep:
		return newSweep[K]()
	case TwoQ:
		return newTwoQ[K]()
	case Auto:
		return newAuto[K]()
	}
	return newLRU[K]()
}
