package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"nibble/internal/rule"
	"pgregory.net/rapid"
)

// model is the cache in plain words: lists, and no clever arithmetic. Its sizes
// are powers of two from 64 KiB, so that a capacity is a size, and a free region
// is reused for its own size only.
type model struct {
	budget  int64
	idle    []int        // oldest release first
	leases  map[int]int  // open leases by key
	ahead   map[int]bool // prefetched and not used
	private map[int]bool // above the budget when they came
	dropped map[int]bool // go with the last lease
	scratch []int64      // sizes of open buffers
	lone    map[int]bool // indices of scratch that are private
	free    []int64      // sizes of free regions, ascending
	used    int64        // everything charged
}

// sizeOf is the size of the output with the given key.
func sizeOf(key int) int64 { return 64 * kib << (key % 4) }

func (m *model) held() (n int64) {
	for k := range m.leases {
		n += sizeOf(k)
	}
	for _, s := range m.scratch {
		n += s
	}
	return n
}

func (m *model) freeBytes() (n int64) {
	for _, s := range m.free {
		n += s
	}
	return n
}

func (m *model) giveBack(size int64, private bool) {
	if private {
		m.used -= size
		return
	}
	m.free = append(m.free, size)
	slices.Sort(m.free)
}

func (m *model) evictOldest() {
	m.giveBack(sizeOf(m.idle[0]), false)
	delete(m.ahead, m.idle[0])
	m.idle = m.idle[1:]
}

func (m *model) trimLargest() {
	last := len(m.free) - 1
	m.used -= m.free[last]
	m.free = m.free[:last]
}

// settle follows everything that frees bytes.
func (m *model) settle() {
	for m.used > m.budget && len(m.free) > 0 {
		m.trimLargest()
	}
	for m.used > m.budget && len(m.idle) > 0 {
		m.evictOldest()
		m.trimLargest()
	}
}

// room makes room for sizes and reports whether it could; may tells whether the
// oldest may go.
func (m *model) room(sizes []int64, pinned int64, may func(key int) bool) bool {
	var need int64
	for _, s := range sizes {
		need += s
	}
	if m.held()+pinned+need > m.budget {
		return false
	}
	for m.used-m.freeBytes()+need > m.budget {
		if !may(m.idle[0]) {
			return false
		}
		m.evictOldest()
	}
	var added int64
	for _, s := range sizes {
		if i := slices.Index(m.free, s); i >= 0 {
			m.free = slices.Delete(m.free, i, i+1)
		} else {
			added += s
		}
	}
	for m.used+added > m.budget {
		m.trimLargest()
	}
	m.used += added
	return true
}

// alone makes everything go for one size above the budget.
func (m *model) alone(size int64) bool {
	if m.held() > 0 {
		return false
	}
	for len(m.idle) > 0 {
		m.evictOldest()
	}
	for len(m.free) > 0 {
		m.trimLargest()
	}
	m.used = size
	return true
}

func (m *model) resident(key int) bool { return m.leases[key] > 0 || slices.Contains(m.idle, key) }

func (m *model) lease(key int) {
	if i := slices.Index(m.idle, key); i >= 0 {
		m.idle = slices.Delete(m.idle, i, i+1)
	}
	m.leases[key]++
	delete(m.ahead, key)
}

// acquire reports the number of hits, and whether the request succeeds.
func (m *model) acquire(keys []int) (hits int, ok bool) {
	var sizes []int64
	var distinct []int
	var total, pinned int64
	for _, k := range keys {
		if slices.Contains(distinct, k) {
			hits++
			continue
		}
		distinct = append(distinct, k)
		total += sizeOf(k)
		switch {
		case m.leases[k] > 0:
			hits++
		case m.resident(k):
			hits++
			pinned += sizeOf(k)
		default:
			sizes = append(sizes, sizeOf(k))
		}
	}
	if total > m.budget && len(distinct) > 1 {
		return 0, false
	}
	if len(sizes) == 1 && sizes[0] > m.budget {
		if !m.alone(sizes[0]) {
			return 0, false
		}
		m.private[distinct[0]] = true
	} else if len(sizes) > 0 {
		// The request's own hits are not in the way of its misses.
		var own, others []int
		for _, k := range m.idle {
			if slices.Contains(distinct, k) {
				own = append(own, k)
			} else {
				others = append(others, k)
			}
		}
		before := m.idle
		m.idle = others
		if !m.room(sizes, pinned, func(int) bool { return true }) {
			m.idle = before
			return 0, false
		}
		m.idle = append(m.idle, own...)
	}
	for _, k := range keys {
		m.lease(k)
	}
	return hits, true
}

func (m *model) release(key int) {
	if m.leases[key]--; m.leases[key] > 0 {
		return
	}
	delete(m.leases, key)
	if m.private[key] || m.dropped[key] || m.budget == 0 {
		m.giveBack(sizeOf(key), m.private[key])
		delete(m.private, key)
		delete(m.dropped, key)
	} else {
		m.idle = append(m.idle, key)
	}
	m.settle()
}

func (m *model) prefetch(keys []int) (started int) {
	// What is there already counts as just released, and is in nobody's way.
	var own, fresh []int
	var pinned int64
	for _, k := range keys {
		if i := slices.Index(m.idle, k); i >= 0 {
			m.idle = slices.Delete(m.idle, i, i+1)
			own = append(own, k)
			pinned += sizeOf(k)
		}
	}
	inFlight := 0
	for i, k := range keys {
		if m.leases[k] > 0 || slices.Contains(own, k) || slices.Contains(keys[:i], k) {
			continue
		}
		if sizeOf(k) > m.budget || !m.room([]int64{sizeOf(k)}, pinned, func(old int) bool { return !m.ahead[old] }) {
			break
		}
		pinned += sizeOf(k)
		inFlight++
		fresh = append(fresh, k)
	}
	m.idle = append(append(m.idle, own...), fresh...)
	for _, k := range fresh {
		m.ahead[k] = true
	}
	return inFlight
}

// machine drives a cache and its model through the same calls.
type machine struct {
	c       *Cache[int]
	m       model
	open    []Lease // with their keys
	keys    []int
	buffers []*Buffer
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.Int64Range(0, 24).Draw(t, "budget") * 64 * kib
		d := &machine{
			c: New[int](Options{Budget: budget, FailWhenFull: true, Here: 8 * 64 * kib}),
			m: model{budget: budget, leases: map[int]int{}, ahead: map[int]bool{}, private: map[int]bool{}, dropped: map[int]bool{}, lone: map[int]bool{}},
		}
		defer d.c.Close()
		t.Repeat(map[string]func(*rapid.T){
			"":          d.check,
			"Acquire":   d.acquire,
			"Many":      d.acquireMany,
			"Try":       d.tryAcquire,
			"Release":   d.release,
			"Release2":  d.release,
			"Buffer":    d.buffer,
			"Free":      d.freeBuffer,
			"SetBudget": d.setBudget,
			"Drop":      d.drop,
			"Prefetch":  d.prefetch,
		})
		for len(d.open) > 0 {
			d.releaseAt(0)
		}
		for _, b := range d.buffers {
			b.Free()
		}
		if s := d.c.Stats(); s.Used > s.Budget || s.Used != s.Idle+s.ArenaFree {
			t.Fatalf("at rest: %+v", s)
		}
	})
}

var drawKey = rapid.IntRange(0, 11)

// check compares everything that can be seen, and the order of eviction.
func (d *machine) check(t *rapid.T) {
	s := d.c.Stats()
	var idle, scratch int64
	for _, k := range d.m.idle {
		idle += sizeOf(k)
	}
	for _, n := range d.m.scratch {
		scratch += n
	}
	got := []int64{s.Budget, s.Used, s.Idle, s.Leased, s.Scratch, s.InFlight, s.ArenaFree}
	want := []int64{d.m.budget, d.m.used, idle, d.m.held() - scratch, scratch, 0, d.m.freeBytes()}
	if !slices.Equal(got, want) {
		t.Fatalf("budget, used, idle, leased, scratch, in flight, free:\n got %v\nwant %v", got, want)
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	order := []int{}
	for _, k := range d.c.rank.(*lru[int]).list.Keys() {
		if d.c.entries[k].pins == 0 {
			order = append(order, k)
		}
	}
	if !slices.Equal(order, append([]int{}, d.m.idle...)) {
		t.Fatalf("the order of eviction is %v, want %v", order, d.m.idle)
	}
	for i, l := range d.open {
		if !holds(l.Bytes(), d.keys[i]) {
			t.Fatalf("the lease of %d lost its bytes", d.keys[i])
		}
	}
}

func (d *machine) request(t *rapid.T, keys []int) {
	var items []Item[int]
	for _, k := range keys {
		it := item(k, sizeOf(k))
		it.Waits = rapid.Bool().Draw(t, "waits")
		items = append(items, it)
	}
	wantHits, want := d.m.acquire(keys)
	leases, hits, err := d.c.AcquireMany(t.Context(), items, fill)
	if !want {
		if !errors.Is(err, rule.ErrBudget) {
			t.Fatalf("acquire %v: %v, want ErrBudget", keys, err)
		}
		return
	}
	if err != nil || hits != wantHits {
		t.Fatalf("acquire %v: %d hits, %v; want %d", keys, hits, err, wantHits)
	}
	d.open, d.keys = append(d.open, leases...), append(d.keys, keys...)
}

func (d *machine) acquire(t *rapid.T) { d.request(t, []int{drawKey.Draw(t, "key")}) }

func (d *machine) acquireMany(t *rapid.T) {
	d.request(t, rapid.SliceOfN(drawKey, 1, 5).Draw(t, "keys"))
}

func (d *machine) tryAcquire(t *rapid.T) {
	k := drawKey.Draw(t, "key")
	l, ok := d.c.TryAcquire(k)
	if ok != d.m.resident(k) {
		t.Fatalf("a try for %d: %v", k, ok)
	}
	if ok {
		d.m.lease(k)
		d.open, d.keys = append(d.open, l), append(d.keys, k)
	}
}

func (d *machine) release(t *rapid.T) {
	if len(d.open) == 0 {
		t.Skip("no lease")
	}
	d.releaseAt(rapid.IntRange(0, len(d.open)-1).Draw(t, "which"))
}

func (d *machine) releaseAt(i int) {
	d.open[i].Release()
	d.m.release(d.keys[i])
	d.open, d.keys = slices.Delete(d.open, i, i+1), slices.Delete(d.keys, i, i+1)
}

func (d *machine) buffer(t *rapid.T) {
	size := sizeOf(drawKey.Draw(t, "size"))
	b, err := d.c.Buffer(t.Context(), size)
	ok := false
	if size > d.m.budget {
		ok = d.m.alone(size)
		d.m.lone[len(d.m.scratch)] = ok
	} else {
		ok = d.m.room([]int64{size}, 0, func(int) bool { return true })
		d.m.lone[len(d.m.scratch)] = false
	}
	if ok != (err == nil) {
		t.Fatalf("buffer of %d: %v, want success %v", size, err, ok)
	}
	if ok {
		d.buffers = append(d.buffers, b)
		d.m.scratch = append(d.m.scratch, size)
	}
}

// freeBuffer frees the youngest, which keeps the model's list simple.
func (d *machine) freeBuffer(t *rapid.T) {
	last := len(d.buffers) - 1
	if last < 0 {
		t.Skip("no buffer")
	}
	d.buffers[last].Free()
	d.buffers = d.buffers[:last]
	size := d.m.scratch[last]
	d.m.scratch = d.m.scratch[:last]
	d.m.giveBack(size, d.m.lone[last])
	d.m.settle()
}

func (d *machine) setBudget(t *rapid.T) {
	d.m.budget = rapid.Int64Range(0, 24).Draw(t, "budget") * 64 * kib
	for d.m.budget == 0 && len(d.m.idle) > 0 {
		d.m.evictOldest()
	}
	d.m.settle()
	if over, want := d.c.SetBudget(d.m.budget), max(0, d.m.used-d.m.budget); over != want {
		t.Fatalf("over by %d, want %d", over, want)
	}
}

func (d *machine) drop(t *rapid.T) {
	n := rapid.IntRange(2, 5).Draw(t, "one in")
	match := func(k int) bool { return k%n == 0 }
	d.c.Drop(match)
	var kept []int
	for _, k := range d.m.idle {
		if match(k) {
			d.m.giveBack(sizeOf(k), false)
			delete(d.m.ahead, k)
		} else {
			kept = append(kept, k)
		}
	}
	d.m.idle = kept
	for k := range d.m.leases {
		if match(k) {
			d.m.dropped[k] = true
		}
	}
	d.m.settle()
}

func (d *machine) prefetch(t *rapid.T) {
	keys := rapid.SliceOfN(drawKey, 1, 5).Draw(t, "keys")
	var items []Item[int]
	for _, k := range keys {
		items = append(items, item(k, sizeOf(k)))
	}
	want := d.m.prefetch(keys)
	n, err := d.c.Prefetch(t.Context(), items, fill)
	d.c.Wait(context.Background(), everything)
	if err != nil || n != want {
		t.Fatalf("prefetch %v started %d, %v; want %d", fmt.Sprint(keys), n, err, want)
	}
}
