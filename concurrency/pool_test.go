package concurrency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// goroutine is the number of the calling goroutine, from its stack.
func goroutine() string {
	buf := make([]byte, 64)
	buf = buf[:runtime.Stack(buf, false)]
	return string(bytes.Fields(buf)[1])
}

func TestRunWorksEachIndexOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		for _, n := range []int{0, 1, 2, 7, 1000} {
			for _, limit := range []int{-1, 0, 1, 2, 100} {
				p := NewPool(workers)
				seen := make([]atomic.Int32, n)
				// Plain counters: the race detector objects if two
				// goroutines ever have the same worker number.
				scratch := make([]int, p.Workers())
				err := p.Run(t.Context(), n, limit, func(worker, i int) error {
					seen[i].Add(1)
					scratch[worker]++
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				total := 0
				for w, k := range scratch {
					total += k
					if limit > 0 && w >= limit && k > 0 {
						t.Errorf("worker %d took part, the limit is %d", w, limit)
					}
				}
				for i := range seen {
					if k := seen[i].Load(); k != 1 {
						t.Errorf("workers=%d n=%d: index %d was worked %d times", workers, n, i, k)
					}
				}
				if total != n || p.free.Load() != int64(workers) {
					t.Errorf("workers=%d n=%d: %d calls, %d slots free afterwards", workers, n, total, p.free.Load())
				}
			}
		}
	}
}

func TestRunOfOneStaysOnCaller(t *testing.T) {
	caller := goroutine()
	err := NewPool(8).Run(t.Context(), 1, 0, func(worker, i int) error {
		if g := goroutine(); g != caller || worker != 0 {
			t.Errorf("worker %d on goroutine %s, the caller is %s", worker, g, caller)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Helpers of all runs together stay within the slots, and every caller works
// although there are more callers than slots.
func TestSlotsAreShared(t *testing.T) {
	const workers, callers = 4, 10
	p := NewPool(workers)
	var busy, most atomic.Int32
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			caller := goroutine()
			err := p.Run(t.Context(), 50, 0, func(int, int) error {
				if goroutine() == caller {
					runtime.Gosched()
					return nil
				}
				n := busy.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				busy.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if m := most.Load(); m > workers-1 {
		t.Errorf("%d helpers worked at once, there are %d slots and a caller holds one", m, workers)
	}
	if f := p.free.Load(); f != workers {
		t.Errorf("%d slots are free afterwards, want %d", f, workers)
	}
}

// A slot that comes free during a run is used by it.
func TestRunRecruitsLater(t *testing.T) {
	p := NewPool(2)
	p.free.Store(1) // somebody else holds a slot
	helped := make(chan struct{})
	err := p.Run(t.Context(), 100, 0, func(worker, i int) error {
		switch {
		case worker == 1:
			select {
			case <-helped:
			default:
				close(helped)
			}
		case i == 10:
			p.free.Add(1)
		case i > 10:
			<-helped
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The error of a run does not depend on who was faster.
func TestLowestError(t *testing.T) {
	for range 200 {
		err := NewPool(8).Run(t.Context(), 100, 0, func(_, i int) error {
			if i >= 5 && i%2 == 1 {
				return fmt.Errorf("index %d", i)
			}
			return nil
		})
		if err == nil || err.Error() != "index 5" {
			t.Fatalf("got %v, want the error of index 5", err)
		}
	}
}

func TestErrorStopsHandingOut(t *testing.T) {
	var calls atomic.Int32
	bad := errors.New("bad")
	err := NewPool(2).Run(t.Context(), 1_000_000, 0, func(_, i int) error {
		calls.Add(1)
		return bad
	})
	if err != bad || calls.Load() > 2 {
		t.Errorf("%v after %d calls, want the error after one call of each worker", err, calls.Load())
	}
}

func TestRunContext(t *testing.T) {
	why := errors.New("the store closes")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err := NewPool(1).Run(ctx, 10, 0, func(int, int) error {
		calls++
		cancel(why)
		return nil
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || calls != 1 {
		t.Errorf("%v after %d calls, want canceled and its cause after one", err, calls)
	}
	for _, n := range []int{0, 1, 10} {
		err := NewPool(2).Run(ctx, n, 0, func(int, int) error {
			t.Error("work was called under a done context")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("n=%d: %v, want canceled", n, err)
		}
	}
}

// All indices were worked before the context was done: the run is complete.
func TestRunCompleteDespiteContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := NewPool(1).Run(ctx, 3, 0, func(_, i int) error {
		if i == 2 {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Errorf("%v, though every index was worked", err)
	}
}

func explode() { panic(errors.New("boom")) }

func TestPanicReachesCaller(t *testing.T) {
	for _, culprit := range []int{0, 1} {
		p := NewPool(2)
		got := func() (v any) {
			defer func() { v = recover() }()
			both := make(chan struct{}, 2)
			err := p.Run(t.Context(), 2, 0, func(worker, i int) error {
				both <- struct{}{}
				for len(both) < 2 { // until both workers have an index
					runtime.Gosched()
				}
				if worker == culprit {
					explode()
				}
				return nil
			})
			t.Errorf("Run returned %v instead of panicking", err)
			return nil
		}()
		e, ok := got.(*Panic)
		if !ok {
			t.Fatalf("worker %d: recovered %v, want a *Panic", culprit, got)
		}
		if text := e.Error(); !strings.HasPrefix(text, "boom") || !strings.Contains(text, "concurrency.explode") {
			t.Errorf("the text lacks the value or the stack:\n%s", text)
		}
		if e.Unwrap() == nil || Recovered(e) != e {
			t.Error("the panic's value is lost when it is passed on")
		}
		if p.free.Load() != 2 {
			t.Errorf("%d slots are free after a panic, want 2", p.free.Load())
		}
	}
}

func TestGoexitIsAnError(t *testing.T) {
	p := NewPool(2)
	both := make(chan struct{}, 2)
	err := p.Run(t.Context(), 2, 0, func(worker, i int) error {
		both <- struct{}{}
		for len(both) < 2 {
			runtime.Gosched()
		}
		if worker == 1 {
			runtime.Goexit()
		}
		return nil
	})
	if !errors.Is(err, errGoexit) {
		t.Errorf("%v, though one index was never finished", err)
	}
}

// Work may itself use the pool: a caller never waits for a slot.
func TestNestedRun(t *testing.T) {
	p := NewPool(2)
	var calls atomic.Int32
	err := p.Run(t.Context(), 4, 0, func(int, int) error {
		return p.Run(t.Context(), 4, 0, func(int, int) error {
			calls.Add(1)
			return nil
		})
	})
	if err != nil || calls.Load() != 16 {
		t.Errorf("%v after %d calls, want 16", err, calls.Load())
	}
}

func TestContextErr(t *testing.T) {
	if err := ContextErr(t.Context()); err != nil {
		t.Errorf("live context: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if err := ContextErr(ctx); err != context.Canceled {
		t.Errorf("no cause: %v, want context.Canceled itself", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	own := fmt.Errorf("own words: %w", context.Canceled)
	cancel(own)
	if err := ContextErr(ctx); err != own {
		t.Errorf("a cause that says what it is: %v, want it unchanged", err)
	}
}

func BenchmarkRun(b *testing.B) {
	p := NewPool(0)
	for _, n := range []int{1, 2, 64} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Run(b.Context(), n, 0, func(int, int) error { return nil })
			}
		})
	}
}

// A clock that stands still while the caller looks on does not keep it looking.
func TestRunInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		err := NewPool(2).Run(t.Context(), 2, 2, func(worker, _ int) error {
			started.Add(1)
			for started.Load() < 2 {
				runtime.Gosched()
			}
			if worker > 0 {
				time.Sleep(time.Second)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A batch of 16 pieces of 24 µs each, as of 16 MiB in memory: what workers are
// missing in half of the 384 µs is the time to wake the second one.
func BenchmarkWake(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			p := NewPool(workers)
			for b.Loop() {
				_ = p.Run(b.Context(), 16, workers, func(int, int) error {
					for start := time.Now(); time.Since(start) < 24*time.Microsecond; {
					}
					return nil
				})
			}
		})
	}
}
