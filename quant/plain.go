package quant

import (
	"fmt"

	"nibble/tensor"
)

// Plain copies a tensor that is not quantized, or converts it between float
// types. Its one part is the tensor itself.
type Plain struct {
	numel  int64
	stored tensor.DType
}

// NewPlain makes a decoder of numel elements of a real dtype. The container has
// checked that they fill whole bytes.
func NewPlain(numel int64, stored tensor.DType) *Plain {
	if _, ok := tensor.Bytes(numel, stored); !ok || stored == tensor.Stored {
		panic(fmt.Sprintf("quant: no plain tensor of %d elements of %v", numel, stored))
	}
	return &Plain{numel, stored}
}

// Numel is the number of elements.
func (d *Plain) Numel() int64 { return d.numel }

// DType is the stored dtype.
func (d *Plain) DType() tensor.DType { return d.stored }

// Can reports whether dt is the stored dtype, or both are float types and dt
// is F16, BF16 or F32.
func (d *Plain) Can(dt tensor.DType) bool {
	return dt == d.stored || d.stored.IsFloat() && restorable(dt)
}

// Align is 1, or the number of elements that fill whole bytes where an element
// does not: other ranges are refused.
func (d *Plain) Align() int64 {
	switch d.stored.Bits() {
	case 4:
		return 2
	case 6:
		return 4
	}
	return 1
}

// Parts is 1.
func (d *Plain) Parts() int { return 1 }

// Span is the byte range of elements [lo, hi).
func (d *Plain) Span(_ int, lo, hi int64) (off, n int64) {
	if a := d.Align(); lo%a != 0 || hi%a != 0 {
		panic(fmt.Sprintf("quant: range [%d, %d) of %v splits a byte", lo, hi, d.stored))
	}
	bits := int64(d.stored.Bits())
	if bits >= 8 {
		return lo * (bits / 8), (hi - lo) * (bits / 8)
	}
	// Elements of whole bytes: divide first, so that nothing overflows.
	a := d.Align()
	perBytes := a * bits / 8
	return lo / a * perBytes, (hi - lo) / a * perBytes
}

// Decode writes elements [lo, hi) as dt to dst.
func (d *Plain) Decode(dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte, w Write) {
	mustFit(d, dst, dt, lo, hi, parts)
	tensor.Convert(dst, dt, parts[0], d.stored)
}
