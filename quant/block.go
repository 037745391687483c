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
	r.open(b.scales, activeKernel(), 0, parts)
	r.read(dst, 0)
}

// groups cuts a range of elements into pieces with known scales. Scales that
// can be read where they are stored make one piece of it; others are computed
// group by group, cut at multiples of group blocks:
//
//	var g groups
//	for g.open(b, k, lo, hi, parts); g.next(); {
//		// elements [g.lo, g.hi), whose blocks have g.scales()
//	}
//
// It is a value to be kept on the stack, and no callback, so that decoding a row
// allocates nothing.
type groups struct {
	*blocked
	reader scaleReader
	lo, hi int64     // the piece
	end    int64     // of the whole range
	stored []float32 // all scales of the range where they are stored, or nil
	n      int       // scales of the piece
	buf    [group]float32
}

// open starts before the first piece of [lo, hi). parts are the bytes that its
// scales are read from.
func (g *groups) open(b *blocked, k kernel, lo, hi int64, parts [][]byte) {
	g.blocked, g.hi, g.end = b, lo, hi
	if lo < hi {
		first, _ := b.blockRange(lo, hi)
		g.reader.open(b.scales, k, first, parts)
		g.stored = g.reader.stored()
		raceReadScales(g.stored) // kernels will
	}
}

// next goes to the next piece, if there is one.
func (g *groups) next() bool {
	g.lo = g.hi
	if g.lo == g.end {
		return false
	}
	if g.stored != nil {
		g.hi = g.end
		return true
	}
	first, end := g.blockRange(g.lo, g.end)
	end = min(end, (first/group+1)*group)
	g.hi = min(g.end, end*g.size)
	g.n = int(end - first)
	g.reader.read(g.scales(), first)
	return true
}

// scales are those of the blocks that the piece touches, valid until the next.
func (g *groups) scales() []float32 {
	if g.stored != nil {
		return g.stored
	}
	return g.buf[:g.n]
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
