package store

import (
	"context"

	"nibble/tensor"
)

// Packed is a quantized tensor as loaders with kernels of their own want it:
// codes as stored, scales decoded.
type Packed struct {
	// Codes lends the packed codes as on disk: for nf4 and fp4 two elements a
	// byte, the high nibble first; for blockwise8 one a byte.
	Codes Lease
	// Scales has one value a block of BlockSize elements of the flattened
	// tensor, nested statistics resolved. For int8: the row statistics SCB.
	// The caller owns it; it is not charged to the budget.
	Scales []float32
	// Table is what codes stand for: 16 values for nf4 and fp4, 256 for
	// blockwise8, nil for int8, whose codes are the numbers. The caller owns
	// it.
	Table     []float32
	BlockSize int64 // elements with one scale; for int8 those of a row
	Scheme    Scheme
	Shape     tensor.Shape // of the decoded tensor; read-only
	DType     tensor.DType // what it restores to
}

// scaled is a decoder that can say its scales by themselves.
type scaled interface {
	Blocks() int64
	// Scales decodes all scales. parts are whole parts of the tensor.
	Scales(dst []float32, parts [][]byte)
	// Values is the table of what codes stand for, nil for numbers.
	Values(parts [][]byte) []float32
}

// Packed lends the codes of a quantized tensor together with what decodes
// them. The caller must release Packed.Codes. A plain tensor is
// ErrUnsupported.
func (t *Tensor) Packed(ctx context.Context) (*Packed, error) {
	if err := t.st.begin(); err != nil {
		return nil, err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return nil, err
	}
	dec, ok := r.dec.(scaled)
	if !ok {
		return nil, t.errorf("%w: a %s tensor has no packed form", ErrUnsupported, r.scheme)
	}
	p := &Packed{
		Scales: make([]float32, dec.Blocks()), BlockSize: r.blockSize,
		Scheme: r.scheme, Shape: r.shape, DType: r.dec.DType(),
	}
	if p.Scheme == SchemeInt8 && len(p.Shape) == 2 {
		p.BlockSize = p.Shape[1]
	}
	err = t.wholeCompanions(ctx, r, func(parts [][]byte) {
		dec.Scales(p.Scales, parts)
		p.Table = dec.Values(parts)
	})
	if err != nil {
		return nil, t.locate(err)
	}
	if p.Codes, err = t.Raw(ctx); err != nil {
		return nil, err
	}
	return p, nil
}
