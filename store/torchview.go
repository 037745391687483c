package store

import (
	"encoding/binary"
	"math"
	"sync"

	"nibble/cache"
	"nibble/quant"
	"nibble/store/pytorch"
	"nibble/tensor"
)

// torchStorage is a run of bytes in a torch file that tensors view.
type torchStorage struct {
	pytorch.Storage
	shard *shard
	blob  *Tensor    // stands for the inflated bytes in the cache; nil when the storage is not deflated
	mu    sync.Mutex // one inflation at a time
}

func newTorchStorage(st *Store, sh *shard, s *pytorch.Storage) *torchStorage {
	ts := &torchStorage{Storage: *s, shard: sh}
	if s.Deflated {
		ts.blob = &Tensor{st: st, name: "storage " + s.Key, e: &entry{
			name: "storage " + s.Key, dtype: tensor.U8, shape: tensor.Shape{s.Bytes}, numel: s.Bytes, shard: sh, n: s.Bytes,
			view: &inflated{ts},
		}}
	}
	return ts
}

// window returns bytes [off, off+n) of the storage, in place where it can.
func (s *torchStorage) window(off, n int64, scratch *[]byte) ([]byte, error) {
	if s.blob == nil {
		return s.shard.file.Window(s.Offset+off, n, scratch)
	}
	buf := grow(scratch, n)
	if s.fromCache(buf, off) {
		return buf, nil
	}
	// No room in the budget: inflate what is needed and let the rest go by.
	return buf, s.InflateRange(s.shard.file, buf, off)
}

// fromCache copies bytes of the inflated storage out of the cache, and inflates
// into the cache first if the budget has room at once. It never waits for the
// budget: the caller holds bytes of it.
func (s *torchStorage) fromCache(dst []byte, off int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.blob.st
	k := key{t: s.blob, raw: true}
	lease, ok := st.cache.TryAcquire(k)
	if !ok {
		started, _ := st.cache.Prefetch(st.closing, []cache.Item[key]{{Key: k, Size: s.Bytes}}, st.fill)
		if started == 0 {
			return false
		}
		st.cache.Wait(func(other key) bool { return other == k })
		if lease, ok = st.cache.TryAcquire(k); !ok {
			return false
		}
	}
	defer lease.Release()
	copy(dst, lease.Bytes()[off:])
	return true
}

func (s *torchStorage) check(off, n int64) error {
	if s.Deflated {
		return s.shard.file.Check(s.Offset + s.Compressed)
	}
	return s.shard.file.Check(s.Offset + off + n)
}

// inflated reads a deflated storage from its start: the viewer of a blob.
type inflated struct{ s *torchStorage }

func (v *inflated) window(off, n int64, scratch *[]byte) ([]byte, error) {
	buf := grow(scratch, n)
	return buf, v.s.InflateRange(v.s.shard.file, buf, off)
}

func (v *inflated) check(off, n int64) error { return v.s.check(off, n) }

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

func (v *stridedView) window(off, n int64, scratch *[]byte) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	lo, hi := off/v.size, (off+n+v.size-1)/v.size
	buf := grow(scratch, (hi-lo)*v.size)
	first, end := v.extent(lo, hi)
	var inner []byte
	src, err := v.storage.window(first*v.size, (end-first)*v.size, &inner)
	if err != nil {
		return nil, err
	}
	if v.contiguous {
		copy(buf, src)
	} else {
		v.gather(buf, src, first, lo, hi)
	}
	if v.storage.BigEndian {
		tensor.FromOrder(buf, buf, v.word, tensor.HostLittleEndian)
	}
	return buf[off-lo*v.size:][:n], nil
}

func (v *stridedView) check(off, n int64) error {
	if n == 0 {
		return nil
	}
	first, end := v.extent(off/v.size, (off+n+v.size-1)/v.size)
	return v.storage.check(first*v.size, (end-first)*v.size)
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

// gather copies elements [lo, hi) of the tensor to dst. src begins at element
// first of the storage.
func (v *stridedView) gather(dst, src []byte, first, lo, hi int64) {
	last := len(v.shape) - 1
	if last < 0 {
		copy(dst, src)
		return
	}
	index := make([]int64, len(v.shape))
	at := v.start - first
	for d, rest := last, lo; d >= 0; d-- {
		index[d] = rest % v.shape[d]
		rest /= v.shape[d]
		at += index[d] * v.strides[d]
	}
	for i := lo; i < hi; {
		run := min(v.shape[last]-index[last], hi-i)
		for range run {
			copy(dst[(i-lo)*v.size:][:v.size], src[at*v.size:])
			at += v.strides[last]
			i++
		}
		index[last] += run
		for d := last; d > 0 && index[d] == v.shape[d]; d-- {
			at += v.strides[d-1] - index[d]*v.strides[d]
			index[d] = 0
			index[d-1]++
		}
	}
}

// grow makes *scratch n bytes long.
func grow(scratch *[]byte, n int64) []byte {
	if int64(cap(*scratch)) < n {
		*scratch = make([]byte, n)
	}
	*scratch = (*scratch)[:n]
	return *scratch
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

func (m memory) window(off, n int64, _ *[]byte) ([]byte, error) { return m[off : off+n], nil }
func (m memory) check(int64, int64) error                       { return nil }

// scalar is the value of one little-endian float.
func scalar(dt tensor.DType, data []byte) float64 {
	if dt == tensor.F64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
	var f [4]byte
	tensor.Convert(f[:], tensor.F32, data, dt, false)
	return float64(math.Float32frombits(binary.NativeEndian.Uint32(f[:])))
}
