package cache

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// lru ranks by time of release. Eviction is by bytes, so the list itself is
// never full.
type lru[K comparable] struct {
	list *simplelru.LRU[K, int64] // sizes
}

func newLRU[K comparable]() *lru[K] { return &lru[K]{newList[K]()} }

// newList returns a list of keys and sizes without a limit of its own.
func newList[K comparable]() *simplelru.LRU[K, int64] {
	list, err := simplelru.NewLRU[K, int64](math.MaxInt, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return list
}

func (l *lru[K]) access(K, int64) {}

func (l *lru[K]) idle(k K, size int64) {
	if _, ok := l.list.Get(k); !ok {
		l.list.Add(k, size)
	}
}

func (l *lru[K]) worst() (K, bool) {
	k, _, ok := l.list.GetOldest()
	return k, ok
}

// below is true: what is about to be used is younger than all that was used.
func (l *lru[K]) below(K, K) bool { return true }

func (l *lru[K]) remove(k K, _ reason) { l.list.Remove(k) }

func (l *lru[K]) resize(int64) {}

func (l *lru[K]) forget(match func(K) bool) {
	for _, k := range l.list.Keys() {
		if match(k) {
			l.list.Remove(k)
		}
	}
}
