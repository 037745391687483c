package cache

import "fmt"

// Policy names the order in which idle entries are evicted.
type Policy uint8

const (
	LRU Policy = iota // the entry that was released longest ago
)

var policyNames = []string{LRU: "lru"}

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
	// remove takes k out of the order: it is gone, or leased and in the way.
	remove(k K)
	// forget removes every trace of the keys that match.
	forget(match func(K) bool)
}

func newRanking[K comparable](p Policy, budget int64) ranking[K] {
	return newLRU[K]()
}
