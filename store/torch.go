package store

import (
	"context"

	"nibble/internal/rule"
	"nibble/quant"
	"nibble/store/pytorch"
	"nibble/tensor"
)

// addTorch lists the tensors of a torch file, and the quantizations that its
// objects describe.
func (st *Store) addTorch(sh *shard, f *pytorch.File) {
	storages := make([]*torchStorage, len(f.Storages))
	for i := range f.Storages {
		storages[i] = newTorchStorage(st, sh, &f.Storages[i])
		sh.stored += f.Storages[i].Bytes
		if storages[i].Deflated {
			sh.deflated = append(sh.deflated, storages[i])
		}
	}
	st.expect(len(f.Tensors))
	at := make([]int32, len(f.Tensors)) // tensor of the file → entry, or -1
	for i := range f.Tensors {
		at[i] = st.add(torchEntry(sh, &f.Tensors[i], storages))
	}
	for i := range f.Quantized {
		if q := &f.Quantized[i]; at[q.Packed] >= 0 {
			st.objects = append(st.objects, newObjectState(q, at))
		}
	}
	for _, o := range f.Opaque {
		st.opaque = append(st.opaque, Opaque{Name: o.Name, Class: o.Class, File: sh.rel})
	}
}

// Opaque is a value in a torch file whose class nibble does not read. The
// tensors beside it are not affected.
type Opaque struct {
	Name  string // path of the value, formed like a tensor's name
	Class string // module and name
	File  string // relative to the checkpoint
}

// A view may repeat the elements of its storage, and so be of any size. One
// that is larger than maxExpanded bytes, and than maxExpansion times its
// storage, is not believed.
const (
	maxExpanded  = 1 << 30
	maxExpansion = 1024
)

// torchEntry describes a tensor of a torch file: plainly where it lies in the
// file as it is, else by a view.
func torchEntry(sh *shard, t *pytorch.Tensor, storages []*torchStorage) entry {
	e := entry{name: t.Name, dtype: t.DType, shape: t.Shape, shard: sh}
	if t.Err != nil {
		e.err = t.Err
		return e
	}
	var ok, fits bool
	if e.numel, ok = t.Shape.Numel(); ok {
		e.n, fits = tensor.Bytes(e.numel, t.DType)
	}
	if !ok || !fits || t.DType.Size() == 0 {
		e.err = rule.New(rule.TorchGeometry, "shape %s of dtype %s has no size in bytes", t.Shape, t.DType).For(t.Name)
		return e
	}
	s := storages[t.Storage]
	if e.expanded = e.n > s.Bytes; e.expanded && e.n > max(maxExpanded, maxExpansion*s.Bytes) {
		e.err = rule.New(rule.TorchLimit, "shape %s is a view of %d bytes that would take %d", t.Shape, s.Bytes, e.n).For(t.Name)
		return e
	}
	inPlace := t.Contiguous && !s.Deflated && (!s.BigEndian || t.DType.WordSize() == 1)
	e.off = s.Offset + t.Start*int64(t.DType.Size())
	if !inPlace {
		e.view = &stridedView{
			storage: s, size: int64(t.DType.Size()), word: t.DType.WordSize(),
			shape: t.Shape, strides: t.Strides, start: t.Start, contiguous: t.Contiguous,
		}
	}
	return e
}

// objectState is a quantization that Python objects describe. Its companions
// are entries, by index; -1 where there is none.
type objectState struct {
	q          *pytorch.Quantized
	packed     int32
	companions []int32
	parts      [numRoles]int32
	offset     int32
	json       int32
}

func newObjectState(q *pytorch.Quantized, at []int32) *objectState {
	find := func(i int) int32 {
		if i < 0 {
			return -1
		}
		return at[i]
	}
	o := &objectState{q: q, packed: at[q.Packed], offset: find(q.OffsetTensor), json: find(q.JSON)}
	for _, c := range q.Companions {
		if at[c] >= 0 {
			o.companions = append(o.companions, at[c])
		}
	}
	for r := range o.parts {
		o.parts[r] = -1
	}
	o.parts[roleAbsmax] = find(q.Absmax)
	o.parts[roleQuantMap] = find(q.QuantMap)
	o.parts[roleNestedAbsmax] = find(q.NestedAbsmax)
	o.parts[roleNestedMap] = find(q.NestedMap)
	o.parts[roleSCB] = find(q.SCB)
	return o
}

// bind finds the decoder of t from what the objects say.
func (o *objectState) bind(ctx context.Context, t *Tensor, r *resolution) {
	r.scheme = SchemeUnknown
	if o.q.Err != nil {
		r.err = o.q.Err
		return
	}
	var set [numRoles]*entry
	for role, i := range o.parts {
		if i < 0 {
			continue
		}
		set[role] = &t.st.entries[i]
	}
	if r.err = usable(t.e, set); r.err != nil {
		return
	}
	if o.q.Scheme == pytorch.SchemeInt8 {
		if o.q.WeightFormat != "" {
			if r.err = quant.CheckWeightFormatName(o.q.WeightFormat); r.err != nil {
				r.scheme = SchemeInt8
				return
			}
		}
		t.bindInt8(ctx, r, set)
		return
	}
	state, err := o.state(ctx, t)
	if err != nil {
		r.err = err
		return
	}
	if state.Nested != nil && set[roleNestedAbsmax] != nil && set[roleNestedMap] == nil {
		set[roleNestedMap] = defaultMap(t.e.shard)
	}
	if o.q.Scheme == pytorch.SchemeBlockwise8 {
		t.bindBlockwise(r, state, set)
		return
	}
	if set[roleQuantMap] == nil {
		// The lists of 2023 carry no table: their quant type implies it.
		set[roleQuantMap] = &entry{dtype: tensor.F32, shape: tensor.Shape{16}, n: 64, shard: t.e.shard}
	}
	t.bindState(r, state, set)
}

// state turns the values of the objects into a quantization state, which its
// decoder judges.
func (o *objectState) state(ctx context.Context, t *Tensor) (*quant.State, error) {
	if o.json >= 0 {
		return parseState(ctx, &t.st.entries[o.json])
	}
	s := &quant.State{QuantType: o.q.QuantType, BlockSize: o.q.BlockSize, Shape: o.q.Shape}
	var err error
	if s.DType, err = restoredDType(o.q.DType, o.q.Scheme); err != nil {
		return nil, err
	}
	if !o.q.HasShape {
		if o.q.Scheme == pytorch.Scheme4Bit {
			return nil, rule.New(rule.QuantShape, "shape is null")
		}
		s.Shape = t.e.shape
	}
	if !o.q.Nested {
		return s, nil
	}
	s.Nested = &quant.Nested{BlockSize: o.q.NestedBlockSize, DType: tensor.F32}
	if o.q.NestedDType != "" {
		s.Nested.DType, _ = tensor.FromTorch(o.q.NestedDType) // Stored where unknown: refused by the decoder
	}
	if s.Nested.Offset, err = o.nestedOffset(ctx, t); err != nil {
		return nil, err
	}
	return s, nil
}

// restoredDType reads the dtype that a state names. Optimizer state names none
// and is of float32.
func restoredDType(name, scheme string) (tensor.DType, error) {
	if name == "" && scheme == pytorch.SchemeBlockwise8 {
		return tensor.F32, nil
	}
	d, ok := tensor.FromTorch(name)
	if !ok {
		return d, rule.New(rule.QuantShape, "dtype is %q; want float16, bfloat16 or float32", name)
	}
	return d, nil
}

// nestedOffset is the offset of nested scales: a number, or a tensor of one.
func (o *objectState) nestedOffset(ctx context.Context, t *Tensor) (float64, error) {
	if o.q.HasOffset {
		return o.q.NestedOffset, nil
	}
	if o.offset < 0 {
		return 0, rule.New(rule.Nested, "nested_offset is missing")
	}
	e := &t.st.entries[o.offset]
	if e.err != nil || e.numel != 1 || !e.dtype.IsFloat() {
		return 0, rule.New(rule.Nested, "nested_offset is a tensor of dtype %s and shape %s, want one number", e.dtype, e.shape)
	}
	data, err := e.read(ctx, 16)
	if err != nil {
		return 0, err
	}
	return scalar(e.dtype, data), nil
}

func (t *Tensor) bindBlockwise(r *resolution, state *quant.State, set [numRoles]*entry) {
	r.scheme, r.blockSize = SchemeBlockwise8, state.BlockSize
	d, err := quant.NewBlockwise(state, quant.BlockwiseParts{
		Codes:        *stored(t.e),
		Absmax:       stored(set[roleAbsmax]),
		QuantMap:     stored(set[roleQuantMap]),
		NestedAbsmax: stored(set[roleNestedAbsmax]),
		NestedMap:    stored(set[roleNestedMap]),
	})
	if err != nil {
		r.err = err
		return
	}
	r.dec, r.nested = d, d.Nested()
	r.parts = [quant.MaxParts]*entry{t.e, set[roleAbsmax], set[roleQuantMap], set[roleNestedAbsmax], set[roleNestedMap]}
}
