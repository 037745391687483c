package store

import (
	"errors"
	"unsafe"

	"nibble/cache"
	"nibble/mmap"
	"nibble/tensor"
)

// Lease lends the bytes of one tensor until Release. It is a small value and
// may be copied; the copies are one lease. The bytes belong to the store: they
// must not be written to, and must not be touched after Release.
type Lease struct {
	t      *Tensor
	dt     tensor.DType
	shape  tensor.Shape
	cached cache.Lease // decoded elements; the zero Lease for a view
	view   *viewSlot   // pins the mapping that data lies in
	gen    uint64
	data   []byte
	empty  bool // a tensor without elements needs neither
}

// Tensor is the handle that the lease is of.
func (l Lease) Tensor() *Tensor { return l.t }

// DType is the element type of Bytes: what was asked for, or the tensor's own.
func (l Lease) DType() tensor.DType { return l.dt }

// Shape is the shape of the decoded tensor, in elements; for Raw, that of the
// stored tensor. It is read-only.
func (l Lease) Shape() tensor.Shape { return l.shape }

// Bytes are the elements in row-major order and in the byte order of the host
// (for Raw: as on disk). They are read-only and valid until Release; nil after
// it.
func (l Lease) Bytes() []byte {
	switch {
	case l.view != nil:
		if l.view.gen.Load() != l.gen {
			return nil
		}
		return l.data
	case l.empty:
		return []byte{}
	}
	return l.cached.Bytes()
}

// Float32s are the elements of an F32 tensor, nil for any other dtype. The
// rules of Bytes hold.
func (l Lease) Float32s() []float32 { return elements[float32](l) }

// Float16s are the elements of an F16 tensor, nil for any other dtype. The
// rules of Bytes hold.
func (l Lease) Float16s() []tensor.Float16 { return elements[tensor.Float16](l) }

// BFloat16s are the elements of a BF16 tensor, nil for any other dtype. The
// rules of Bytes hold.
func (l Lease) BFloat16s() []tensor.BFloat16 { return elements[tensor.BFloat16](l) }

// Elements are the elements of l as values of T, nil when l's dtype is another.
// The rules of Lease.Bytes hold.
func Elements[T Element](l Lease) []T { return elements[T](l) }

func elements[T Element](l Lease) []T {
	b := l.Bytes()
	if !holds(dtypeOf[T](), l.dt) || b == nil {
		return nil
	}
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Do calls f with Bytes, and turns a fault on bytes of the mapping, which
// happens when another process shortens the file, into ErrTruncated. f must
// not keep the slice, and runs on the calling goroutine: goroutines that it
// starts are not protected.
func (l Lease) Do(f func(data []byte) error) error {
	data := l.Bytes()
	if l.view == nil || data == nil {
		return f(data)
	}
	var err error
	if fault := mmap.Guard([]*mmap.File{l.view.file}, func() { err = f(data) }); fault != nil {
		return l.t.locate(fault)
	}
	// Bytes behind the end of a file that shrank may have read as zeros, or been
	// refused by a system call: either explains an error of f.
	if short := l.t.e.check(0, l.t.e.n); short != nil {
		return errors.Join(l.t.locate(short), err)
	}
	return err
}

// Release gives the bytes back. It reports whether this call ended the lease:
// releasing twice does no harm.
func (l Lease) Release() bool {
	switch {
	case l.view != nil:
		return l.view.release(l.gen)
	case l.empty:
		return true
	}
	return l.cached.Release()
}

// Leases are the leases of one AcquireMany, in the order asked for.
type Leases []Lease

// Release releases all of them.
func (ls Leases) Release() {
	for _, l := range ls {
		l.Release()
	}
}
