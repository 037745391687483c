package store

import (
	"context"

	"nibble/cache"
	"nibble/concurrency"
	"nibble/internal/rule"
	"nibble/quant"
	"nibble/tensor"
)

// Acquire lends the whole tensor decoded to dt (tensor.Stored: what it
// restores to). A plain tensor that lies in the file as the host wants it is a
// view of the mapping: neither copied nor charged. Everything else comes from
// the cache, or is decoded into it within the budget; concurrent callers share
// one decode.
//
// It waits for bytes of the budget in order of arrival until ctx is done. A
// tensor that does not decode to dt is ErrUnsupported.
func (t *Tensor) Acquire(ctx context.Context, dt tensor.DType) (Lease, error) {
	if err := concurrency.ContextErr(ctx); err != nil {
		return Lease{}, t.locate(err)
	}
	if l, ok := t.hit(dt); ok {
		return l, nil
	}
	st := t.st
	if err := st.begin(); err != nil {
		return Lease{}, err
	}
	defer st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return Lease{}, err
	}
	if dt, err = r.strict(t, dt); err != nil {
		return Lease{}, err
	}
	if l, ok, err := t.lend(r, dt); ok || err != nil {
		return l, err
	}
	ctx, cancel := st.patience(ctx)
	defer cancel()
	c, err := st.cache.Acquire(ctx, item(t, r, dt), st.fill)
	if err != nil {
		return Lease{}, t.locate(err)
	}
	return t.lease(r, dt, c), nil
}

// hit is Acquire for a tensor that is in the cache already: no allocation, and
// no lock but the cache's.
func (t *Tensor) hit(dt tensor.DType) (Lease, bool) {
	r := t.res.Load()
	if r == nil || r.err != nil || t.st.shut.Load() {
		return Lease{}, false
	}
	if dt == tensor.Stored {
		dt = r.dec.DType()
	}
	c, ok := t.st.cache.TryAcquire(key{t: t, dt: dt})
	if !ok {
		return Lease{}, false
	}
	return t.lease(r, dt, c), true
}

func (t *Tensor) lease(r *resolution, dt tensor.DType, c cache.Lease) Lease {
	return Lease{t: t, dt: dt, shape: r.shape, cached: c}
}

func item(t *Tensor, r *resolution, dt tensor.DType) cache.Item[key] {
	// The product fits: what is stored is at most maxExpansion times the file,
	// or maxExpanded, and nothing decodes to more than eight times that.
	size, _ := tensor.Bytes(r.dec.Numel(), dt)
	return cache.Item[key]{Key: key{t: t, dt: dt}, Size: size, Waits: t.waits(r)}
}

// waits reports whether a decode of t may wait for a disk or a reader. None is
// likely to if all of it was read before, from mappings and in place: what has
// to be inflated or gathered takes long enough to be worth a goroutine, too.
func (t *Tensor) waits(r *resolution) bool {
	if !t.whole.Load() || t.st.cfg.SourcePages == "drop" {
		return true
	}
	for p := range r.dec.Parts() {
		if e := r.parts[p]; e.view != nil || !e.shard.file.Mapped() {
			return true
		}
	}
	return false
}

// lend makes a lease that needs no decoding: an empty tensor, or a view of the
// mapping.
func (t *Tensor) lend(r *resolution, dt tensor.DType) (l Lease, ok bool, err error) {
	if r.dec.Numel() == 0 {
		return Lease{t: t, dt: dt, shape: r.shape, empty: true}, true, nil
	}
	if !t.isView(r, dt) {
		return Lease{}, false, nil
	}
	return t.lendStored(r.shape, dt)
}

// isView reports whether lend would make a view.
func (t *Tensor) isView(r *resolution, dt tensor.DType) bool {
	if r.dec.Numel() == 0 {
		return true
	}
	if r.scheme != SchemePlain || dt != t.e.dtype || t.st.cfg.CopyPlain || t.e.view != nil || !t.e.shard.file.Mapped() {
		return false
	}
	data, err := t.e.shard.file.Window(t.e.off, t.e.n, nil)
	return err == nil && tensor.InPlace(data, dt.WordSize())
}

// size is the size of t decoded to dt, and whether that is a view of the
// mapping, which is not charged.
func (t *Tensor) size(ctx context.Context, dt tensor.DType) (n int64, view bool, err error) {
	if err := t.st.begin(); err != nil {
		return 0, false, err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return 0, false, err
	}
	dt = r.lenient(dt)
	return item(t, r, dt).Size, t.isView(r, dt), nil
}

// lendStored makes a view of the stored bytes. ok is false when they do not lie
// in a mapping.
func (t *Tensor) lendStored(shape tensor.Shape, dt tensor.DType) (l Lease, ok bool, err error) {
	file := t.e.shard.file
	if t.e.view != nil || !file.Mapped() {
		return Lease{}, false, nil
	}
	data, err := file.Window(t.e.off, t.e.n, nil)
	if err != nil {
		return Lease{}, false, t.locate(err)
	}
	if err := t.e.check(0, t.e.n); err != nil {
		return Lease{}, false, t.locate(err)
	}
	slot, gen, ok := t.st.views.lease(file, t.name)
	if !ok {
		return Lease{}, false, t.errorf("%w", ErrClosed)
	}
	t.st.counters.views.Add(1)
	return Lease{t: t, dt: dt, shape: shape, view: slot, gen: gen, data: data}, true, nil
}

// Raw lends the stored bytes of the tensor, of a quantized one the packed
// codes, as they are on disk: zero-copy where the file is mapped, else a
// charged copy. The lease's dtype and shape are the stored ones. A tensor that
// cannot be decoded can still be read raw.
func (t *Tensor) Raw(ctx context.Context) (Lease, error) {
	st := t.st
	if err := st.begin(); err != nil {
		return Lease{}, err
	}
	defer st.end()
	if err := concurrency.ContextErr(ctx); err != nil {
		return Lease{}, t.locate(err)
	}
	if t.e.err != nil {
		return Lease{}, t.locate(t.e.err)
	}
	if t.e.n == 0 {
		return Lease{t: t, dt: t.e.dtype, shape: t.e.shape, empty: true}, nil
	}
	if !st.cfg.CopyPlain {
		if l, ok, err := t.lendStored(t.e.shape, t.e.dtype); ok || err != nil {
			return l, err
		}
	}
	ctx, cancel := st.patience(ctx)
	defer cancel()
	c, err := st.cache.Acquire(ctx, cache.Item[key]{Key: key{t: t, raw: true}, Size: t.e.n, Waits: true}, st.fill)
	if err != nil {
		return Lease{}, t.locate(err)
	}
	return Lease{t: t, dt: t.e.dtype, shape: t.e.shape, cached: c}, nil
}

// rawResolution decodes the stored bytes of e as they are.
func rawResolution(e *entry) *resolution {
	r := &resolution{dec: quant.NewPlain(e.n, tensor.U8), shape: e.shape, scheme: SchemePlain}
	r.parts[0] = e
	return r
}

// AcquireMany lends all of ts decoded to dt, or none: the bytes they need
// together are reserved at once, so that a caller never holds some leases while
// it waits for others, and all are decoded from one queue. Several that need
// more than the whole budget are ErrBudget: acquire them one by one, or let
// them go by with Tiles. Tensors that do not decode to dt come in their own
// dtype; Lease.DType tells. The leases are in the order of ts.
func (st *Store) AcquireMany(ctx context.Context, ts []*Tensor, dt tensor.DType) (Leases, error) {
	leases, _, err := st.AcquireCount(ctx, ts, dt)
	return leases, err
}

// Count says where the leases of one call came from, in tensors.
type Count struct {
	Hits   int // found in the cache, or in the decode of another caller
	Misses int // decoded
	Views  int // lent from the mapping
}

// AcquireCount is AcquireMany, and says where the leases came from.
func (st *Store) AcquireCount(ctx context.Context, ts []*Tensor, dt tensor.DType) (Leases, Count, error) {
	var n Count
	if err := st.begin(); err != nil {
		return nil, n, err
	}
	defer st.end()
	leases := make(Leases, 0, len(ts))
	var items []cache.Item[key]
	var at []int // items → leases
	undo := func(err error) (Leases, Count, error) {
		leases.Release()
		return nil, Count{}, err
	}
	for _, t := range ts {
		if t.st != st {
			return undo(t.errorf("a handle of another store"))
		}
		r, err := t.resolve(ctx)
		if err != nil {
			return undo(err)
		}
		own := r.lenient(dt)
		l, ok, err := t.lend(r, own)
		if err != nil {
			return undo(err)
		}
		if !ok {
			l = Lease{t: t, dt: own, shape: r.shape}
			items, at = append(items, item(t, r, own)), append(at, len(leases))
		}
		leases = append(leases, l)
	}
	n.Views = len(ts) - len(items)
	if len(items) == 0 {
		return leases, n, nil
	}
	ctx, cancel := st.patience(ctx)
	defer cancel()
	cached, hits, err := st.cache.AcquireMany(ctx, items, st.fill)
	if err != nil {
		return undo(st.locate(err, ts))
	}
	for i, c := range cached {
		leases[at[i]].cached = c
	}
	n.Hits, n.Misses = hits, len(items)-hits
	return leases, n, nil
}

// fill is the cache's loader: it decodes items into their buffers from one
// queue.
func (st *Store) fill(ctx context.Context, items []cache.Item[key], bufs [][]byte) error {
	if err := st.begin(); err != nil {
		return err
	}
	defer st.end()
	jobs := make([]job, len(items))
	for i, it := range items {
		j := job{t: it.Key.t, dt: it.Key.dt, dst: bufs[i], fresh: it.Fresh}
		if it.Key.raw {
			j.r, j.dt = rawResolution(j.t.packed()), tensor.U8
		} else if j.r = j.t.res.Load(); j.r == nil {
			return j.t.errorf("decoded before it was resolved")
		}
		j.hi = j.r.dec.Numel()
		jobs[i] = j
	}
	return st.decode(ctx, jobs)
}

// locate fills in the path of an error about ts, and the tensor if it is one.
func (st *Store) locate(err error, ts []*Tensor) error {
	if len(ts) == 1 {
		return ts[0].locate(err)
	}
	return rule.Locate(err, st.path, "")
}

// locate fills in path and tensor of an error about t.
func (t *Tensor) locate(err error) error {
	return rule.Locate(err, t.e.shard.file.Path(), t.name)
}
