package store

import (
	"context"
	"iter"
	"slices"
	"sync"

	"nibble/cache"
	"nibble/tensor"
)

// Layer is one layer of the model, or one of the groups around the layers. It
// holds no lease and stays valid until the store is closed.
type Layer struct {
	st    *Store
	pos   int // in st.layers()
	span  layerSpan
	ahead func(pos int, dt tensor.DType) // prefetch behind this layer; nil for none
}

// Name is the layer's name through its number, such as "model.layers.0", or
// "embeddings", "head" or "all" for what has no number.
func (l *Layer) Name() string { return l.span.name }

// Index is the layer's number, as in its name; -1 for the groups without one.
func (l *Layer) Index() int64 { return l.span.index }

// Tensors yields the layer's tensors in checkpoint order.
func (l *Layer) Tensors() iter.Seq[*Tensor] { return slices.Values(l.span.members) }

// Len is the number of the layer's tensors.
func (l *Layer) Len() int { return len(l.span.members) }

// Acquire lends all tensors of the layer decoded to dt, or none, as
// Store.AcquireMany does: a layer of several decoded tensors that is larger
// than the budget (Bytes tells) is ErrBudget. With Config.Prefetch, the layers that follow are
// decoded in the background once it has succeeded.
func (l *Layer) Acquire(ctx context.Context, dt tensor.DType) (Leases, error) {
	leases, _, err := l.AcquireCount(ctx, dt)
	return leases, err
}

// AcquireCount is Acquire, and says where the leases came from.
func (l *Layer) AcquireCount(ctx context.Context, dt tensor.DType) (Leases, Count, error) {
	leases, n, err := l.st.AcquireCount(ctx, l.span.members, dt)
	if err == nil && l.ahead != nil {
		l.ahead(l.pos, dt)
	}
	return leases, n, err
}

// Bytes is the size of all tensors of the layer decoded to dt, and of those
// among them that are charged to the budget rather than viewed.
func (l *Layer) Bytes(ctx context.Context, dt tensor.DType) (total, charged int64, err error) {
	for _, t := range l.span.members {
		n, view, err := t.size(ctx, dt)
		if err != nil {
			return 0, 0, err
		}
		total += n
		if !view {
			charged += n
		}
	}
	return total, charged, nil
}

// Layers yields the layers: prefixes in file order, numbers in numeric order
// with gaps kept, "embeddings" first and "head" last. It yields an error once,
// as the last thing, when ctx is done or the store closed. With
// Config.Prefetch, decodes in the background stop when the loop is left.
func (st *Store) Layers(ctx context.Context) iter.Seq2[*Layer, error] {
	return func(yield func(*Layer, error) bool) {
		ahead := st.prefetcher(ctx)
		defer ahead.stop()
		for i, span := range st.layers() {
			err := ctx.Err()
			if err == nil {
				err = st.live()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			l := &Layer{st: st, pos: i, span: span}
			if st.cfg.Prefetch > 0 {
				l.ahead = ahead.from
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// prefetcher decodes layers ahead of a loop over them. Safe for concurrent use:
// layers may be acquired on several goroutines.
type prefetcher struct {
	st     *Store
	ctx    context.Context // done when the loop has ended, or the store closes
	cancel context.CancelFunc
	unhook func() bool

	mu    sync.Mutex
	next  int              // first layer that was not asked for yet
	asked map[*Tensor]bool // what was asked for
}

func (st *Store) prefetcher(ctx context.Context) *prefetcher {
	p := &prefetcher{st: st, asked: map[*Tensor]bool{}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.unhook = context.AfterFunc(st.closing, p.cancel)
	return p
}

// from starts to decode the layers behind pos, and does not wait for them. Their
// quantization states are read meanwhile.
func (p *prefetcher) from(pos int, dt tensor.DType) {
	p.mu.Lock()
	defer p.mu.Unlock()
	layers := p.st.layers()
	last := len(layers) - 1
	if n := p.st.cfg.Prefetch; n < last-pos {
		last = pos + n
	}
	for p.next = max(p.next, pos+1); p.next <= last && p.ctx.Err() == nil; p.next++ {
		for _, t := range layers[p.next].members {
			p.asked[t] = true
		}
		p.st.prefetch(p.ctx, layers[p.next].members, dt)
	}
}

// stop cancels what is in flight and waits for it.
func (p *prefetcher) stop() {
	p.cancel()
	p.unhook()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) > 0 {
		_ = p.st.cache.Wait(context.Background(), func(k key) bool { return p.asked[k.t] })
	}
}

// prefetch starts to decode ts into idle entries of the cache, as far as the
// budget has room for them. Errors are left to whoever acquires the tensors.
func (st *Store) prefetch(ctx context.Context, ts []*Tensor, dt tensor.DType) {
	if st.begin() != nil {
		return
	}
	defer st.end()
	var items []cache.Item[key]
	for _, t := range ts {
		r, err := t.resolve(ctx)
		if err != nil {
			continue
		}
		own := r.lenient(dt)
		if t.isView(r, own) {
			continue
		}
		items = append(items, item(t, r, own))
	}
	if len(items) > 0 {
		_, _ = st.cache.Prefetch(ctx, items, st.fill)
	}
}
