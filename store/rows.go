package store

import (
	"context"
	"iter"

	"nibble/tensor"
)

// ReadRows decodes rows [r0, r1) of t, counted over its first dimension, into
// dst, which the caller owns and which must hold exactly those elements. Only
// the blocks that the rows need are read. The tensor must decode to the dtype
// that T stands for; a scalar has no rows.
func ReadRows[T Element](ctx context.Context, t *Tensor, dst []T, r0, r1 int64) error {
	return t.ReadRows(ctx, bytesOf(dst), dtypeOf[T](), r0, r1)
}

// ReadRows is the function ReadRows for a caller who has bytes: dst receives
// elements of dt in the byte order of the host.
func (t *Tensor) ReadRows(ctx context.Context, dst []byte, dt tensor.DType, r0, r1 int64) error {
	return t.read(ctx, dst, dt, func(r *resolution) (lo, hi int64, err error) {
		return t.rows(r, r0, r1)
	})
}

// Read decodes elements [lo, hi) of the flattened tensor into dst, which the
// caller owns and which must hold exactly those elements of dt, in the byte
// order of the host.
func (t *Tensor) Read(ctx context.Context, dst []byte, dt tensor.DType, lo, hi int64) error {
	return t.read(ctx, dst, dt, func(r *resolution) (int64, int64, error) {
		if n := r.dec.Numel(); lo < 0 || hi < lo || hi > n {
			return 0, 0, t.errorf("elements [%d,%d) of a tensor that has %d", lo, hi, n)
		}
		return lo, hi, nil
	})
}

func (t *Tensor) read(ctx context.Context, dst []byte, dt tensor.DType, span func(*resolution) (lo, hi int64, err error)) error {
	if err := t.st.begin(); err != nil {
		return err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return err
	}
	if dt, err = r.strict(t, dt); err != nil {
		return err
	}
	lo, hi, err := span(r)
	if err != nil {
		return err
	}
	want, ok := tensor.Bytes(hi-lo, dt)
	if !ok || !wholeBytes(lo, dt) {
		return t.errorf("elements [%d,%d) of dtype %s do not start and end at a byte", lo, hi, dt)
	}
	if int64(len(dst)) != want {
		return t.errorf("destination has %d bytes, elements [%d,%d) of dtype %s need %d", len(dst), lo, hi, dt, want)
	}
	if err := ctx.Err(); err != nil || want == 0 {
		return err
	}
	return t.st.decode(ctx, []job{{t: t, r: r, dt: dt, lo: lo, hi: hi, dst: dst}})
}

// rows turns rows into elements.
func (t *Tensor) rows(r *resolution, r0, r1 int64) (lo, hi int64, err error) {
	if len(r.shape) == 0 {
		return 0, 0, t.errorf("a scalar has no rows")
	}
	if r0 < 0 || r1 < r0 || r1 > r.shape[0] {
		return 0, 0, t.errorf("rows [%d,%d) of a tensor that has %d", r0, r1, r.shape[0])
	}
	per := int64(0)
	if r.shape[0] > 0 {
		per = r.dec.Numel() / r.shape[0]
	}
	return r0 * per, r1 * per, nil
}

// wholeBytes reports whether element i of dt starts at a byte.
func wholeBytes(i int64, dt tensor.DType) bool {
	_, ok := tensor.Bytes(i, dt)
	return ok
}

// Tile is a run of consecutive elements of a tensor.
type Tile struct {
	Lo, Hi int64        // elements of the flattened tensor, half-open
	DType  tensor.DType // of Data
	// Data holds the elements in the byte order of the host. It is the same
	// buffer for every tile: valid until the next one, writable meanwhile.
	Data []byte
}

// Tiles decodes t piece by piece into one buffer of at most size bytes (below 1
// means 1 MiB, and never less than 4 KiB), charged to the budget, for callers who consume elements at
// once: decoding never leaves the processor's cache, and memory does not grow
// with the tensor. A tile is a whole number of rows where one fits in the
// buffer. The dtype is dt, or the tensor's own where it does not decode to dt:
// Tile.DType tells. The iteration ends after an error.
func (t *Tensor) Tiles(ctx context.Context, dt tensor.DType, size int) iter.Seq2[Tile, error] {
	return func(yield func(Tile, error) bool) {
		if err := t.tiles(ctx, dt, size, yield); err != nil {
			yield(Tile{}, t.locate(err))
		}
	}
}

func (t *Tensor) tiles(ctx context.Context, dt tensor.DType, size int, yield func(Tile, error) bool) error {
	// Not in the way of Close while the caller looks at a tile: the buffer is
	// the cache's, which stays until it is given back.
	st := t.st
	r, err := t.open(ctx)
	if err != nil {
		return err
	}
	dt = r.lenient(dt)
	numel := r.dec.Numel()
	total, ok := tensor.Bytes(numel, dt)
	if !ok {
		return t.errorf("%w: %d elements of %s", ErrLimit, numel, dt)
	}
	if total == 0 {
		return nil
	}
	buf, free, err := st.tileBuffer(ctx, min(total, st.tileSize(size)))
	if err != nil {
		return err
	}
	defer free()
	step := tileStep(r, dt, int64(len(buf)))
	for lo := int64(0); lo < numel; lo += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		hi := min(lo+step, numel)
		data := buf[:(hi-lo)*int64(dt.Bits())/8]
		if err := t.decodeTile(ctx, job{t: t, r: r, dt: dt, lo: lo, hi: hi, dst: data, tile: true}); err != nil {
			return err
		}
		if !yield(Tile{Lo: lo, Hi: hi, DType: dt, Data: data}, nil) {
			return nil
		}
	}
	return nil
}

// open resolves t, while the store is open.
func (t *Tensor) open(ctx context.Context) (*resolution, error) {
	if err := t.st.begin(); err != nil {
		return nil, err
	}
	defer t.st.end()
	return t.resolve(ctx)
}

func (t *Tensor) decodeTile(ctx context.Context, j job) error {
	if err := t.st.begin(); err != nil {
		return err
	}
	defer t.st.end()
	return t.st.decode(ctx, []job{j})
}

const (
	defaultTile = 1 << 20
	// leastTile is the smallest buffer worth cutting a tensor into. Below it,
	// the budget is no budget for tiles: theirs is not charged.
	leastTile = 4 << 10
)

// tileSize is the size of a tile's buffer: as asked for, but no more than a
// quarter of the budget, so that others may decode beside it.
func (st *Store) tileSize(size int) int64 {
	if size <= 0 {
		size = defaultTile
	}
	return max(min(int64(size), st.cache.Stats().Budget/4), leastTile)
}

// tileBuffer is a buffer of n bytes, charged unless the budget is below
// leastTile. The caller calls free when done.
func (st *Store) tileBuffer(ctx context.Context, n int64) (buf []byte, free func(), err error) {
	if st.cache.Stats().Budget < leastTile {
		return make([]byte, n), func() {}, nil
	}
	ctx, cancel := st.patience(ctx)
	defer cancel()
	b, err := st.cache.Buffer(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	return b.Bytes(), b.Free, nil
}

// tileStep is the number of elements in a tile that fits n bytes: whole rows
// if one fits, else whole blocks, else whole bytes.
func tileStep(r *resolution, dt tensor.DType, n int64) int64 {
	fit := n * 8 / int64(dt.Bits())
	row := int64(1)
	if len(r.shape) > 0 && r.shape[0] > 0 {
		row = r.dec.Numel() / r.shape[0]
	}
	for _, unit := range []int64{row, r.dec.Align(), 8} {
		if unit > 0 && unit <= fit && wholeBytes(unit, dt) {
			return fit / unit * unit
		}
	}
	return max(fit, 1)
}
