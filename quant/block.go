package quant

import (
	"fmt"

	"nibble/tensor"
)

// group is the number of blocks whose scales are computed at a time, to a
// buffer on the stack. It is that of a nested block as bitsandbytes writes
// them, so that one has one nested scale.
const group = 256

// blocked is what the decoders of block-quantized tensors share: the flattened
// tensor is cut into blocks of size elements, the last may be short.
type blocked struct {
	numel    int64
	size     int64
	restored tensor.DType
	scales   *scales
}

// Numel is the number of elements.
func (b *blocked) Numel() int64 { return b.numel }

// DType is what bitsandbytes restores the tensor to.
func (b *blocked) DType() tensor.DType { return b.restored }

// Can reports whether dt is F16, BF16 or F32.
func (b *blocked) Can(dt tensor.DType) bool { return restorable(dt) }

// Align is the blocksize.
func (b *blocked) Align() int64 { return b.size }

// BlockSize is the number of elements with one scale.
func (b *blocked) BlockSize() int64 { return b.size }

// Blocks is the number of blocks, that is, of scales.
func (b *blocked) Blocks() int64 { return b.scales.blocks }

// Nested reports whether the scales are quantized themselves.
func (b *blocked) Nested() bool { return b.scales.nested != nil }

// blockRange is the range of blocks that elements [lo, hi) lie in; lo < hi.
func (b *blocked) blockRange(lo, hi int64) (first, end int64) {
	return lo / b.size, (hi-1)/b.size + 1
}

// readScales computes all scales from the whole parts that hold them.
func (b *blocked) readScales(dst []float32, parts [][]byte) {
	if int64(len(dst)) != b.Blocks() {
		panic(fmt.Sprintf("quant: %d scales wanted of %d", len(dst), b.Blocks()))
	}
	if len(dst) == 0 {
		return
	}
	var r scaleReader
	r.open(b.scales, 0, parts)
	r.read(dst, 0)
}

// groups cuts elements [lo, hi) at multiples of group blocks and calls decode
// for each piece with the scales of the blocks that it touches. parts are the
// bytes that the scales are read from. The slice is valid during the call.
func (b *blocked) groups(lo, hi int64, parts [][]byte, decode func(lo, hi int64, scales []float32)) {
	if lo == hi {
		return
	}
	var buf [group]float32
	var r scaleReader
	first, _ := b.blockRange(lo, hi)
	r.open(b.scales, first, parts)
	for lo < hi {
		first, end := b.blockRange(lo, hi)
		end = min(end, (first/group+1)*group)
		stop := min(hi, end*b.size)
		s := buf[:end-first]
		r.read(s, first)
		decode(lo, stop, s)
		lo = stop
	}
}

// mustFit panics when a call of Decode breaks its contract.
func mustFit(d Decoder, dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte) {
	if !d.Can(dt) {
		panic(fmt.Sprintf("quant: cannot decode %v to %v", d.DType(), dt))
	}
	if lo < 0 || hi < lo || hi > d.Numel() {
		panic(fmt.Sprintf("quant: range [%d, %d) of %d elements", lo, hi, d.Numel()))
	}
	if want, ok := tensor.Bytes(hi-lo, dt); !ok || int64(len(dst)) != want {
		panic(fmt.Sprintf("quant: destination of %d bytes for %d elements of %v", len(dst), hi-lo, dt))
	}
	if len(parts) != d.Parts() {
		panic(fmt.Sprintf("quant: %d parts; want %d", len(parts), d.Parts()))
	}
	for p, b := range parts {
		if _, want := d.Span(p, lo, hi); int64(len(b)) != want {
			panic(fmt.Sprintf("quant: part %d has %d bytes; want %d", p, len(b), want))
		}
	}
}
