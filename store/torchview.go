package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"nibble/quant"
	"nibble/tensor"
)

// stridedView reads a tensor that does not lie in the file row-major and
// little-endian: it gathers the elements asked for, and only those.
type stridedView struct {
	storage    *torchStorage
	size       int64 // bytes an element
	word       int   // bytes whose order counts
	shape      tensor.Shape
	strides    []int64 // in elements
	start      int64   // in elements of the storage
	contiguous bool
}

// chunkBytes bounds what is read of a storage at once where reading costs
// memory.
const chunkBytes = 1 << 20

func (v *stridedView) window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	lo, hi := off/v.size, (off+n+v.size-1)/v.size
	buf, err := grow(scratch, (hi-lo)*v.size)
	if err != nil {
		return nil, err
	}
	if v.contiguous {
		err = v.copyOut(ctx, buf, lo)
	} else {
		err = v.gather(ctx, buf, lo, hi)
	}
	if err != nil {
		return nil, err
	}
	if v.storage.BigEndian {
		tensor.Swap(buf, buf, v.word)
	}
	return buf[off-lo*v.size:][:n], nil
}

// source is the range of the file that elements of bytes [off, off+n) of the
// tensor lie in.
func (v *stridedView) source(off, n int64) (int64, int64) {
	if n == 0 {
		return v.storage.source(0, 0)
	}
	first, end := v.extent(off/v.size, (off+n+v.size-1)/v.size)
	return v.storage.source(first*v.size, (end-first)*v.size)
}

// extent is the range of storage elements that elements [lo, hi) of the tensor
// lie in: exact for contiguous tensors, else by whole rows.
func (v *stridedView) extent(lo, hi int64) (first, end int64) {
	if v.contiguous {
		return v.start + lo, v.start + hi
	}
	if len(v.shape) == 0 {
		return v.start, v.start + 1
	}
	row := int64(1)
	var reach int64 // from the first to the last element of a row
	for d := 1; d < len(v.shape); d++ {
		row *= v.shape[d]
		reach += (v.shape[d] - 1) * v.strides[d]
	}
	r0, r1 := lo/row, (hi-1)/row
	return v.start + r0*v.strides[0], v.start + r1*v.strides[0] + reach + 1
}

// copyOut copies consecutive elements from lo on to dst.
func (v *stridedView) copyOut(ctx context.Context, dst []byte, lo int64) error {
	src, err := v.storage.window(ctx, (v.start+lo)*v.size, int64(len(dst)), &dst)
	if err != nil {
		return err
	}
	copy(dst, src)
	return nil
}

// gather copies elements [lo, hi) of the tensor to dst. A storage that is in
// memory is looked at as a whole. Else it goes by in chunks: run by run where
// that is less to read, else from front to back, each chunk serving all runs.
func (v *stridedView) gather(ctx context.Context, dst []byte, lo, hi int64) error {
	first, end := v.extent(lo, hi)
	src, release, err := v.storage.whole(ctx, first*v.size, (end-first)*v.size)
	if err != nil {
		return err
	}
	if src != nil {
		defer release()
		v.pickAll(dst, src, first, end, lo, hi)
		return nil
	}
	var chunk []byte
	if v.spans(lo, hi, end-first) >= end-first {
		return v.chunks(ctx, first, end, &chunk, func(src []byte, first, end int64) {
			v.pickAll(dst, src, first, end, lo, hi)
		})
	}
	for r := range v.runs(lo, hi) {
		last := r.at + (r.n-1)*r.stride
		err := v.chunks(ctx, r.at, last+1, &chunk, func(src []byte, first, end int64) {
			v.pick(dst, src, first, end, r, lo)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chunks reads elements [first, end) of the storage piece by piece.
func (v *stridedView) chunks(ctx context.Context, first, end int64, scratch *[]byte, each func(src []byte, first, end int64)) error {
	step := max(chunkBytes/v.size, 1)
	for at := first; at < end; at += step {
		to := min(at+step, end)
		src, err := v.storage.window(ctx, at*v.size, (to-at)*v.size, scratch)
		if err != nil {
			return err
		}
		each(src, at, to)
	}
	return nil
}

// spans is how many elements of the storage lie between the ends of all runs
// of [lo, hi), counted for each run, up to most.
func (v *stridedView) spans(lo, hi, most int64) (n int64) {
	for r := range v.runs(lo, hi) {
		if n += (r.n-1)*r.stride + 1; n >= most {
			return most
		}
	}
	return n
}

// pickAll is pick for all runs of [lo, hi).
func (v *stridedView) pickAll(dst, src []byte, first, end, lo, hi int64) {
	for r := range v.runs(lo, hi) {
		v.pick(dst, src, first, end, r, lo)
	}
}

// run is n elements of the tensor, from element i on, that lie in the storage
// at equal distances from at on: a row along the last dimension, or a part.
type run struct{ i, at, n, stride int64 }

// runs yields elements [lo, hi) of the tensor as runs.
func (v *stridedView) runs(lo, hi int64) func(yield func(run) bool) {
	return func(yield func(run) bool) {
		last := len(v.shape) - 1
		if last < 0 {
			yield(run{0, v.start, 1, 1})
			return
		}
		index := make([]int64, len(v.shape))
		at := v.start
		for d, rest := last, lo; d >= 0; d-- {
			index[d] = rest % v.shape[d]
			rest /= v.shape[d]
			at += index[d] * v.strides[d]
		}
		for i := lo; i < hi; {
			n := min(v.shape[last]-index[last], hi-i)
			if !yield(run{i, at, n, v.strides[last]}) {
				return
			}
			i += n
			index[last] += n
			at += n * v.strides[last]
			for d := last; d > 0 && index[d] == v.shape[d]; d-- {
				at += v.strides[d-1] - index[d]*v.strides[d]
				index[d] = 0
				index[d-1]++
			}
		}
	}
}

// pick copies those elements of r to dst that lie in src, which holds elements
// [first, end) of the storage. dst begins at element lo of the tensor.
func (v *stridedView) pick(dst, src []byte, first, end int64, r run, lo int64) {
	k0, k1 := int64(0), r.n
	switch {
	case r.stride > 0:
		k0 = max(k0, ceilDiv(first-r.at, r.stride))
		k1 = min(k1, ceilDiv(end-r.at, r.stride))
	case r.at < first || r.at >= end:
		return
	}
	if k0 >= k1 {
		return
	}
	to, from := (r.i+k0-lo)*v.size, (r.at+k0*r.stride-first)*v.size
	if r.stride == 1 {
		copy(dst[to:to+(k1-k0)*v.size], src[from:])
		return
	}
	for range k1 - k0 {
		copy(dst[to:to+v.size], src[from:])
		to += v.size
		from += r.stride * v.size
	}
}

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a > 0 && a%b != 0 {
		q++
	}
	return q
}

// grow makes *scratch n bytes long.
func grow(scratch *[]byte, n int64) ([]byte, error) {
	if n < 0 || n > math.MaxInt {
		return nil, fmt.Errorf("%w: a buffer of %d bytes", ErrLimit, n)
	}
	if int64(cap(*scratch)) < n {
		*scratch = make([]byte, n)
	}
	*scratch = (*scratch)[:n]
	return *scratch, nil
}

// defaultMap is the 256-value dynamic map as a stored tensor, for the layouts
// that imply it.
func defaultMap(sh *shard) *entry {
	m := quant.DynamicMap()
	data := make([]byte, 4*len(m))
	for i, f := range m {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(f))
	}
	return &entry{name: "default map", dtype: tensor.F32, shape: tensor.Shape{256}, numel: 256, n: 1024, shard: sh, view: memory(data)}
}

// memory is stored bytes that no file holds.
type memory []byte

func (m memory) window(_ context.Context, off, n int64, _ *[]byte) ([]byte, error) {
	return m[off : off+n], nil
}
func (m memory) source(int64, int64) (int64, int64) { return 0, 0 }

// scalar is the value of one little-endian float.
func scalar(dt tensor.DType, data []byte) float64 {
	if dt == tensor.F64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
	var f [1]float32
	tensor.Widen(f[:], data, dt)
	return float64(f[0])
}
