package quant

import (
	"nibble/internal/rule"
	"nibble/tensor"
)

// scales is how the scales of a tensor's blocks are stored: as numbers, or
// quantized themselves ("nested", "double quantization"), with an 8-bit code a
// scale, a map of 256 values, and one nested scale for each nested block.
type scales struct {
	blocks int64     // how many there are
	plain  floatPart // when not nested
	nested *nestedScales
}

type nestedScales struct {
	blockSize int64
	round     tensor.DType // precision of the arithmetic
	offset    float32
	absmax    floatPart
	codeMap   floatPart
}

// newScales judges the companions that hold n scales. Whether they are nested
// is decided by the type of absmax, and everything else must agree with it.
func newScales(n int64, st *Nested, absmax, nestedAbsmax, nestedMap *Stored) (*scales, error) {
	if err := absmaxPart.require(absmax); err != nil {
		return nil, err
	}
	if absmax.DType != tensor.U8 {
		if nestedAbsmax != nil || nestedMap != nil {
			return nil, rule.New(rule.Nested, "absmax is %v, not quantized, but nested companions are there", absmax.DType)
		}
		if err := absmaxPart.vector(absmax, n, floats...); err != nil {
			return nil, err
		}
		return &scales{blocks: n, plain: floatPart{absmax.DType}}, nil
	}
	if err := absmaxPart.vector(absmax, n, tensor.U8); err != nil {
		return nil, err
	}
	if err := nestedAbsmaxPart.require(nestedAbsmax); err != nil {
		return nil, err
	}
	if err := nestedMapPart.vector(nestedMap, 256, floats...); err != nil {
		return nil, err
	}
	if err := st.check(); err != nil {
		return nil, err
	}
	if err := nestedAbsmaxPart.vector(nestedAbsmax, ceilDiv(n, st.BlockSize), floats...); err != nil {
		return nil, err
	}
	return &scales{blocks: n, nested: &nestedScales{
		blockSize: st.BlockSize,
		round:     st.DType,
		offset:    roundTo(float32(st.Offset), st.DType),
		absmax:    floatPart{nestedAbsmax.DType},
		codeMap:   floatPart{nestedMap.DType},
	}}, nil
}

// parts is the number of stored parts that scales are read from.
func (s *scales) parts() int {
	if s.nested == nil {
		return 1
	}
	return 3
}

// span is the byte range of part p (absmax, nested absmax, nested map) that
// the scales of blocks [lo, hi) need; lo < hi.
func (s *scales) span(p int, lo, hi int64) (off, n int64) {
	switch {
	case s.nested == nil:
		return s.plain.span(lo, hi)
	case p == 0:
		return lo, hi - lo
	case p == 1:
		return s.nested.absmax.span(lo/s.nested.blockSize, (hi-1)/s.nested.blockSize+1)
	}
	return s.nested.codeMap.span(0, 256)
}

// scaleReader computes scales from the bytes of one range of blocks.
type scaleReader struct {
	*scales
	kernel  kernel
	first   int64        // the block of the range's first scale
	parts   [3][]byte    // bytes of span(p)
	codeMap [256]float32 // nested only
}

// open points r at the bytes of the blocks from first on.
func (r *scaleReader) open(s *scales, k kernel, first int64, parts [][]byte) {
	r.scales, r.kernel, r.first = s, k, first
	copy(r.parts[:], parts)
	if s.nested != nil {
		s.nested.codeMap.read(r.codeMap[:], r.parts[2], 0)
	}
}

// stored is all scales of the range, read-only, where they are stored as
// numbers that this machine can read in place; else nil. Copying them first
// would wait for memory that kernels read while they write.
func (r *scaleReader) stored() []float32 {
	if r.nested != nil {
		return nil
	}
	return r.plain.view(r.parts[0])
}

// read computes the scales of blocks [b, b+len(dst)).
func (r *scaleReader) read(dst []float32, b int64) {
	at := int(b - r.first)
	if r.nested == nil {
		r.plain.read(dst, r.parts[0], at)
		return
	}
	codes := r.parts[0][at : at+len(dst)]
	size := r.nested.blockSize
	for len(dst) > 0 {
		n := int(min(int64(len(dst)), size-b%size))
		var scale [1]float32
		r.nested.absmax.read(scale[:], r.parts[1], int(b/size-r.first/size))
		r.nested.decode(r.kernel, dst[:n], codes[:n], &r.codeMap, scale[0])
		dst, codes, b = dst[n:], codes[n:], b+int64(n)
	}
}

// decode computes the scales of one nested block. Product and sum are rounded
// separately, never fused (BNB-004), and to the nested dtype if that is
// narrower.
func (n *nestedScales) decode(k kernel, dst []float32, codes []byte, codeMap *[256]float32, scale float32) {
	if n.round == tensor.F32 {
		for i := k.nested(dst, codes, codeMap, scale, n.offset); i < len(codes); i++ {
			dst[i] = float32(codeMap[codes[i]]*scale) + n.offset
		}
		return
	}
	for i, c := range codes {
		product := roundTo(float32(codeMap[c]*scale), n.round)
		dst[i] = roundTo(float32(product+n.offset), n.round)
	}
}

// roundTo rounds f to the precision of dt.
func roundTo(f float32, dt tensor.DType) float32 {
	switch dt {
	case tensor.F16:
		return tensor.ToFloat16(f).Float32()
	case tensor.BF16:
		return tensor.ToBFloat16(f).Float32()
	}
	return f
}
