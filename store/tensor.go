package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"nibble/concurrency"
	"nibble/internal/rule"
	"nibble/quant"
	"nibble/tensor"
)

// Scheme says how a tensor is stored.
type Scheme string

// The schemes. SchemeUnknown is a tensor with companions of quantization whose
// kind cannot be told because some are missing.
const (
	SchemePlain      Scheme = "plain"
	SchemeNF4        Scheme = "nf4"
	SchemeFP4        Scheme = "fp4"
	SchemeInt8       Scheme = "int8"       // LLM.int8(), row layout
	SchemeBlockwise8 Scheme = "blockwise8" // 8-bit blockwise, optimizer state included
	SchemeUnknown    Scheme = "unknown"
)

// Tensor is a handle: a name and where its bytes are. It is cheap, stays valid
// until the store is closed, and is safe for concurrent use. Nothing of the
// tensor is read before a method that takes a context is called.
type Tensor struct {
	st         *Store
	name       string
	e          *entry       // the packed tensor, or the plain one
	companions []companion  // empty for a plain tensor
	object     *objectState // quantization said by Python objects; nil otherwise

	res atomic.Pointer[resolution] // nil before the first

	warm  atomic.Bool // some of it was decoded before
	whole atomic.Bool // all of it was, at once
}

// companion is a stored tensor that belongs to a packed one.
type companion struct {
	role role
	e    *entry
}

// Info describes a tensor as users see it.
type Info struct {
	Name        string
	Shape       tensor.Shape // of the decoded tensor, in elements; read-only
	DType       tensor.DType // what it restores to
	StoredDType tensor.DType // of the packed tensor
	Scheme      Scheme
	BlockSize   int64  // elements a block, 0 when there are no blocks
	Nested      bool   // the scales are quantized too
	StoredBytes int64  // packed tensor and companions
	File        string // relative to the checkpoint's directory
	Offset      int64  // of the packed tensor, in bytes from the start of File; -1 where it does not lie there as it is
}

// Name is the tensor's exact name.
func (t *Tensor) Name() string { return t.name }

// Info resolves the tensor and describes it. When the tensor is broken the
// error says why and Info still holds all that is known: name, file, stored
// dtype, shape and bytes.
func (t *Tensor) Info(ctx context.Context) (Info, error) {
	info := Info{
		Name: t.name, Shape: t.e.shape, DType: t.e.dtype, StoredDType: t.e.dtype,
		Scheme: SchemePlain, StoredBytes: t.e.n, File: t.e.shard.rel, Offset: t.e.off,
	}
	if t.e.view != nil || t.e.err != nil {
		info.Offset = -1
	}
	for _, c := range t.companions {
		info.StoredBytes += c.e.n
	}
	if err := t.st.begin(); err != nil {
		return info, err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if r != nil {
		info.Scheme, info.BlockSize, info.Nested = r.scheme, r.blockSize, r.nested
		if r.dec != nil {
			info.Shape, info.DType = r.shape, r.dec.DType()
		}
	}
	return info, err
}

// Decodes reports the dtype that a request for dt gives, as AcquireMany and
// the command's --dtype do: dt where the tensor decodes to it, else its own.
func (t *Tensor) Decodes(ctx context.Context, dt tensor.DType) (tensor.DType, error) {
	if err := t.st.begin(); err != nil {
		return tensor.Stored, err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return tensor.Stored, err
	}
	return r.lenient(dt), nil
}

// resolution is what the first use of a tensor finds out: a decoder bound to
// the stored parts, or the rule that the tensor breaks.
type resolution struct {
	dec       quant.Decoder
	parts     [quant.MaxParts]*entry // dec.Parts() of them
	shape     tensor.Shape
	scheme    Scheme
	blockSize int64
	nested    bool
	state     *quant.State // of a 4-bit tensor; nil for others
	err       error
}

// lenient is the dtype that a request for dt gives.
func (r *resolution) lenient(dt tensor.DType) tensor.DType {
	if dt == tensor.Stored || !r.dec.Can(dt) {
		return r.dec.DType()
	}
	return dt
}

// strict is lenient for a caller who cannot use another dtype.
func (r *resolution) strict(t *Tensor, dt tensor.DType) (tensor.DType, error) {
	got := r.lenient(dt)
	if dt != tensor.Stored && !holds(dt, got) {
		return got, t.errorf("%w: %s tensor of dtype %s does not decode to %s", ErrUnsupported, r.scheme, got, dt)
	}
	return got, nil
}

// resolve finds the decoder once. A broken tensor is remembered with its
// error; what may be different next time (a done context, I/O, a truncated
// file) is not.
func (t *Tensor) resolve(ctx context.Context) (*resolution, error) {
	if err := concurrency.ContextErr(ctx); err != nil {
		return nil, t.locate(err)
	}
	if r := t.res.Load(); r != nil {
		return r, r.err
	}
	turn := t.turn()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, t.locate(concurrency.ContextErr(ctx))
	}
	defer func() { <-turn }()
	if r := t.res.Load(); r != nil {
		return r, r.err
	}
	r := t.bind(ctx)
	if r.err != nil {
		r.err = rule.Locate(r.err, t.e.shard.file.Path(), t.name)
		if !lasting(r.err) {
			return r, r.err
		}
	}
	t.res.Store(r)
	return r, r.err
}

// turn is what a goroutine holds while it resolves t: one of a few for all
// tensors, since a lock cannot be left when a context ends, and a channel for
// each tensor costs more than two at once save.
func (t *Tensor) turn() chan struct{} {
	i := uintptr(unsafe.Pointer(t)) / unsafe.Sizeof(*t)
	return t.st.turns[i%uintptr(len(t.st.turns))]
}

// lasting tells errors of the bytes from errors of the moment.
func lasting(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Rule != "" && !errors.Is(err, ErrTruncated)
}

// errorf makes an error about t that breaks no rule of a format.
func (t *Tensor) errorf(format string, args ...any) error {
	return &Error{Path: t.e.shard.file.Path(), Tensor: t.name, Offset: -1, Err: fmt.Errorf(format, args...)}
}
