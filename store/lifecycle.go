package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// begin admits an operation, and keeps mappings in place until end. It fails
// once Close has been called.
func (st *Store) begin() error {
	st.life.Lock()
	defer st.life.Unlock()
	if st.closed {
		return st.closedError()
	}
	st.busy++
	return nil
}

// live fails once Close has been called.
func (st *Store) live() error {
	if err := st.begin(); err != nil {
		return err
	}
	st.end()
	return nil
}

func (st *Store) closedError() error { return &Error{Path: st.path, Offset: -1, Err: ErrClosed} }

// patience is ctx for a request that may wait for bytes: Close ends it, where
// closing the cache does not.
func (st *Store) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if st.owned {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(st.closing, func() { cancel(st.closedError()) })
	return ctx, func() { stop(); cancel(nil) }
}

func (st *Store) end() {
	st.life.Lock()
	defer st.life.Unlock()
	if st.busy--; st.busy == 0 && st.quiet != nil {
		close(st.quiet)
	}
}

// Close refuses new work, cancels prefetch, waits for decodes in flight and
// gives everything back. Requests that wait for bytes of the budget fail with
// ErrClosed, and under a shared cache those that wait for a decode, too. Leases
// that are still open stay valid: Close then returns an error that matches
// ErrLeased and names their tensors, and the last Release unmaps. A second
// Close returns nil.
func (st *Store) Close() error {
	st.life.Lock()
	if st.closed {
		st.life.Unlock()
		return nil
	}
	st.closed = true
	st.shut.Store(true)
	quiet := make(chan struct{})
	if st.busy == 0 {
		close(quiet)
	} else {
		st.quiet = quiet
	}
	st.life.Unlock()
	mine := func(k key) bool { return k.t.st == st }
	st.shutdown()
	if st.owned {
		// Who waits for bytes of the budget may wait for leases of whoever
		// closes: it fails now. Decodes in flight are delivered.
		st.cache.Close()
	}
	<-quiet
	_ = st.cache.Wait(context.Background(), mine)
	st.cache.Drop(mine)
	open := st.views.open()
	for _, k := range st.cache.Leases(mine) {
		open = append(open, k.t.name)
	}
	var errs []error
	for _, sh := range st.shards {
		errs = append(errs, sh.file.Release(), sh.spill.close())
	}
	errs = append(errs, st.files.Close())
	if len(open) > 0 {
		errs = append(errs, st.leasedError(open))
	}
	return errors.Join(errs...)
}

func (st *Store) leasedError(names []string) error {
	const most = 8
	shown := names[:min(len(names), most)]
	quoted := make([]string, len(shown))
	for i, n := range shown {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	list := strings.Join(quoted, ", ")
	if len(names) > most {
		list += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return &Error{Path: st.path, Offset: -1, Err: fmt.Errorf("%w: %s", ErrLeased, list)}
}
