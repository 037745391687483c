package concurrency

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Pool counts the workers that all decodes of a store may use together. It
// keeps no goroutines: they live as long as their Run. A Pool is safe for
// concurrent use.
type Pool struct {
	workers int
	// free is negative while more callers run than there are slots: a caller
	// always works, only its helpers wait for a slot.
	free atomic.Int64
}

// NewPool returns a pool of so many worker slots; below 1 it is GOMAXPROCS.
func NewPool(workers int) *Pool {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: workers}
	p.free.Store(int64(workers))
	return p
}

// Workers is the number of slots, and one more than the largest worker number.
func (p *Pool) Workers() int { return p.workers }

// Run calls work(worker, i) once for each i in [0, n), in increasing order of
// start, and returns when all calls have. The caller takes a share, so a Run
// never waits for a slot; further goroutines join while slots of the pool are
// free, at most max workers in all (max < 1: Workers()). worker is in
// [0, Workers()) and belongs to one goroutine of this Run, for its scratch. A
// Run of one index starts no goroutine.
//
// The first failure ends the handing out. Of several errors Run returns the one
// with the lowest index, which does not depend on the number of workers. A
// context that is done stops it likewise, with ContextErr(ctx), unless every
// index had been worked already. A panic in a worker is re-raised here as a
// *Panic.
func (p *Pool) Run(ctx context.Context, n, max int, work func(worker, i int) error) error {
	if err := ContextErr(ctx); err != nil {
		return err
	}
	if n <= 0 {
		return nil
	}
	if max < 1 || max > p.workers {
		max = p.workers
	}
	r := &run{pool: p, ctx: ctx, n: int64(n), max: min(max, n), work: work}
	r.callerShare()
	return r.result()
}

// run is the state of one Run.
type run struct {
	pool *Pool
	ctx  context.Context
	n    int64
	max  int
	work func(worker, i int) error

	next    atomic.Int64 // the next index to hand out
	stop    atomic.Bool
	helpers errgroup.Group
	working atomic.Int32 // helpers that have begun and not ended
	joined  int          // workers so far; used by the caller only

	mu      sync.Mutex
	failure error
	at      int64 // the index of failure
}

// callerShare works on the calling goroutine and returns when everybody is
// done. Before each index it recruits: slots that other runs give back are put
// to use at once.
func (r *run) callerShare() {
	r.pool.free.Add(-1)
	// Deferred, so that a Goexit in the caller's own share leaves no helper.
	defer func() {
		r.lookOn()
		r.pool.free.Add(1)
		_ = r.helpers.Wait() // errors are in r.failure, with their index
	}()
	r.joined = 1
	for {
		r.recruit()
		if !r.step(0) {
			return
		}
	}
}

// recruit starts helpers as long as there are slots and something to do.
func (r *run) recruit() {
	before := r.joined
	for r.joined < r.max && r.next.Load() < r.n-1 && r.pool.tryTake() {
		id := r.joined
		r.joined++
		r.helpers.Go(func() error {
			defer r.pool.free.Add(1)
			r.working.Add(1)
			defer r.working.Add(-1)
			for r.step(id) {
			}
			return nil
		})
	}
	if r.joined > before {
		// The runtime (Go 1.26, runqgrab) keeps the goroutine that a processor
		// started last for this processor, which is busy here: another sleeps
		// before it takes it, 3 µs by its own account and over 50 by that of
		// Linux. So the helper must not be the last; and the last must run, or it
		// has the same effect later. Gosched would do as well, but where all
		// processors are busy it puts the caller behind everybody else.
		ran := make(chan struct{})
		go close(ran)
		<-ran
	}
}

// The caller looks on while helpers are at their last index for about as long as
// one takes: to sleep and be woken costs 10 µs and more. The number of looks is
// for clocks that are slow, or stand still as in a synctest bubble.
const (
	lookLong = 50 * time.Microsecond
	maxLooks = 2000
)

// lookOn returns when no helper works any more, or soon. One that was never
// given a processor is not waited for: it needs the caller's.
func (r *run) lookOn() {
	end := time.Now().Add(lookLong)
	for range maxLooks {
		if r.working.Load() == 0 || !time.Now().Before(end) {
			return
		}
	}
}

// tryTake takes a slot if one is free.
func (p *Pool) tryTake() bool {
	for {
		n := p.free.Load()
		if n <= 0 {
			return false
		}
		if p.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

var errGoexit = errors.New("a worker ended by runtime.Goexit")

// step works one index and reports whether to go on.
func (r *run) step(worker int) bool {
	if r.stop.Load() {
		return false
	}
	if r.ctx.Err() != nil {
		r.stop.Store(true)
		return false
	}
	i := r.next.Add(1) - 1
	if i >= r.n {
		return false
	}
	err := errGoexit // what remains if work neither returns nor panics
	defer func() {
		if v := recover(); v != nil {
			err = Recovered(v)
		}
		if err != nil {
			r.fail(i, err)
		}
	}()
	err = r.work(worker, int(i))
	return err == nil
}

// fail keeps the failure with the lowest index. All lower ones were handed out
// before and will be heard, so the choice is the same for every schedule.
func (r *run) fail(i int64, err error) {
	r.stop.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || i < r.at {
		r.failure, r.at = err, i
	}
}

// result is called when all workers have returned.
func (r *run) result() error {
	if p, ok := r.failure.(*Panic); ok {
		panic(p)
	}
	if r.failure != nil {
		return r.failure
	}
	if r.next.Load() < r.n {
		return ContextErr(r.ctx)
	}
	return nil
}
