package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"nibble/internal/rule"
)

// storm is many goroutines doing everything at once to one cache.
type storm struct {
	t      *testing.T
	c      *Cache[int]
	budget int64 // the largest
	sizes  []int64
}

// Whatever happens at once, every lease has the bytes of its key, the peak
// stays within the largest budget or the largest output, and in the end the
// account is exact and no goroutine is left.
func TestStorm(t *testing.T) {
	for _, budget := range []int64{0, 8 * kib, 200 * kib, 1000 * kib} {
		for _, opts := range []Options{{}, {Strict: true}, {FailWhenFull: true}, {Policy: Policy(len(policyNames) - 1)}} {
			for _, closes := range []bool{false, true} {
				opts.Budget = budget
				opts.Here = 100_000
				opts.Slow = time.Millisecond
				opts.Log = func(string) {}
				name := fmt.Sprintf("budget=%d/strict=%v/fail=%v/policy=%v/closes=%v", budget, opts.Strict, opts.FailWhenFull, opts.Policy, closes)
				t.Run(name, func(t *testing.T) { newStorm(t, opts).blow(closes) })
			}
		}
	}
}

func newStorm(t *testing.T, o Options) *storm {
	sizes := []int64{0, 1, 64, 100, 5000, 5001, 20_000, 64<<10 - 1, 64 << 10, 70_000, 72_000, 300_000, 5 << 20}
	return &storm{t: t, c: New[int](o), budget: o.Budget, sizes: sizes}
}

func (s *storm) item(r *rand.Rand) Item[int] {
	// The largest is rare: it stops everybody else.
	k := r.IntN(len(s.sizes) - 1)
	if r.IntN(50) == 0 {
		k = len(s.sizes) - 1
	}
	it := item(k, s.sizes[k])
	it.Waits = r.IntN(2) == 0
	return it
}

func (s *storm) blow(closes bool) {
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 25 {
				s.step(r)
			}
		})
	}
	if closes {
		time.Sleep(5 * time.Millisecond)
		s.c.Close()
	}
	all.Wait()
	if st, bound := s.c.Stats(), max(s.budget, s.sizes[len(s.sizes)-1]); st.Peak > bound {
		s.t.Errorf("the peak is %d, the bound %d", st.Peak, bound)
	}
	if !closes {
		s.c.SetBudget(s.budget)
	}
	atRest(s.t, s.c)
}

// load fills the buffers, or fails, or takes long.
func (s *storm) load(r *rand.Rand) Loader[int] {
	luck, pause := r.IntN(20), time.Duration(r.IntN(100))*time.Microsecond
	return func(ctx context.Context, items []Item[int], bufs [][]byte) error {
		switch luck {
		case 0:
			return errUnlucky
		case 1:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
		return fill(ctx, items, bufs)
	}
}

var errUnlucky = errors.New("unlucky")

func (s *storm) step(r *rand.Rand) {
	ctx := s.t.Context()
	if r.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(300))*time.Microsecond)
		defer cancel()
	}
	switch n := r.IntN(100); {
	case n < 40:
		it := s.item(r)
		l, err := s.c.Acquire(ctx, it, s.load(r))
		s.use(r, err, []Item[int]{it}, l)
	case n < 60:
		var items []Item[int]
		for range 1 + r.IntN(5) {
			items = append(items, s.item(r))
		}
		leases, _, err := s.c.AcquireMany(ctx, items, s.load(r))
		s.use(r, err, items, leases...)
	case n < 75:
		it := s.item(r)
		if l, ok := s.c.TryAcquire(it.Key); ok {
			s.use(r, nil, []Item[int]{it}, l)
		}
	case n < 85:
		_, err := s.c.Prefetch(ctx, []Item[int]{s.item(r), s.item(r), s.item(r)}, s.load(r))
		s.judge(err)
	case n < 95:
		it := s.item(r)
		b, err := s.c.Buffer(ctx, it.Size)
		if err != nil {
			s.judge(err)
			return
		}
		pattern(b.Bytes(), it.Key+100)
		if !holds(b.Bytes(), it.Key+100) {
			s.t.Error("a buffer is shared")
		}
		b.Free()
	case n < 98:
		s.c.SetBudget(r.Int64N(s.budget + 1))
	default:
		n := r.IntN(len(s.sizes))
		s.c.Drop(func(k int) bool { return k == n })
	}
}

// use checks leases, releases them, some twice.
func (s *storm) use(r *rand.Rand, err error, items []Item[int], leases ...Lease) {
	if err != nil {
		s.judge(err)
		return
	}
	for i, l := range leases {
		if b := l.Bytes(); int64(len(b)) != items[i].Size || !holds(b, items[i].Key) {
			s.t.Errorf("a lease of %d has the wrong bytes", items[i].Key)
		}
	}
	if r.IntN(10) == 0 {
		time.Sleep(time.Duration(r.IntN(50)) * time.Microsecond)
	}
	for i, l := range leases {
		if !holds(l.Bytes(), items[i].Key) {
			s.t.Errorf("the bytes of %d changed while leased", items[i].Key)
		}
		l.Release()
		if r.IntN(10) == 0 && l.Release() {
			s.t.Error("a lease was released twice")
		}
	}
}

// judge accepts the errors that the storm provokes.
func (s *storm) judge(err error) {
	for _, ok := range []error{nil, errUnlucky, context.Canceled, context.DeadlineExceeded, rule.ErrBudget, rule.ErrClosed} {
		if errors.Is(err, ok) {
			return
		}
	}
	s.t.Errorf("unexpected error: %v", err)
}
