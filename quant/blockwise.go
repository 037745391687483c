package quant

import (
	"math"

	"nibble/internal/rule"
	"nibble/tensor"
)

// BlockwiseParts are the stored parts of a blockwise 8-bit tensor, nil where
// the checkpoint has none.
type BlockwiseParts struct {
	Codes        Stored // one a byte; has the shape of the tensor
	Absmax       *Stored
	QuantMap     *Stored
	NestedAbsmax *Stored
	NestedMap    *Stored
}

// Blockwise decodes 8-bit codes into a stored map of 256 values, as in
// optimizer state. Its parts are the codes, absmax, the map and, when nested,
// the nested absmax and the nested map. An element is map[code] * scale,
// rounded to float32, then to the type asked for.
type Blockwise struct {
	blocked
	codeMap floatPart
}

// NewBlockwise checks a state and its companions against each other and the
// codes. Any positive blocksize will do. The state's shape may be nil, as
// bitsandbytes writes it; the codes have the tensor's own. Errors are
// *rule.Error.
func NewBlockwise(st *State, p BlockwiseParts) (*Blockwise, error) {
	n, err := checkCodes(st, &p.Codes)
	if err != nil {
		return nil, err
	}
	s, err := newScales(ceilDiv(n, st.BlockSize), st.Nested, p.Absmax, p.NestedAbsmax, p.NestedMap)
	if err != nil {
		return nil, err
	}
	if err := mapPart.vector(p.QuantMap, 256, floats...); err != nil {
		return nil, err
	}
	return &Blockwise{blocked{n, st.BlockSize, st.DType, s}, floatPart{p.QuantMap.DType}}, nil
}

// checkCodes judges the state of a blockwise tensor by itself and with its
// codes, and returns the number of elements.
func checkCodes(st *State, codes *Stored) (numel int64, err error) {
	if st.QuantType != "" {
		return 0, rule.New(rule.QuantType, "quant_type of a blockwise 8-bit tensor is %q; want none", st.QuantType)
	}
	if st.BlockSize <= 0 {
		return 0, rule.New(rule.QuantType, "blocksize is %d; want a positive one", st.BlockSize)
	}
	if err := st.checkDType(); err != nil {
		return 0, err
	}
	n, ok := codes.Shape.Numel()
	if !ok {
		return 0, rule.New(rule.QuantShape, "shape %v is negative or overflows", codes.Shape)
	}
	if codes.DType != tensor.U8 || codes.Bytes != n {
		return 0, rule.New(rule.CompanionLen, "codes are %d bytes of %v; shape %v wants %d of u8", codes.Bytes, codes.DType, codes.Shape, n)
	}
	if st.Shape != nil {
		if m, ok := st.Shape.Numel(); !ok || m != n {
			return 0, rule.New(rule.QuantShape, "quant state has shape %v but the codes %v", st.Shape, codes.Shape)
		}
	}
	return n, nil
}

// Parts is 3, or 5 when nested.
func (d *Blockwise) Parts() int { return 2 + d.scales.parts() }

// Span is the byte range of part p that elements [lo, hi) need.
func (d *Blockwise) Span(p int, lo, hi int64) (off, n int64) {
	if lo == hi {
		return 0, 0
	}
	first, end := d.blockRange(lo, hi)
	switch p {
	case 0:
		return lo, hi - lo
	case 1:
		return d.scales.span(0, first, end)
	case 2:
		return d.codeMap.span(0, 256)
	}
	return d.scales.span(p-2, first, end)
}

// scaleParts picks the parts that the scales are read from.
func (d *Blockwise) scaleParts(parts [][]byte) (s [3][]byte) {
	s[0] = parts[1]
	copy(s[1:], parts[3:])
	return s
}

// Scales computes the scale of every block to dst, of length Blocks, from the
// whole parts.
func (d *Blockwise) Scales(dst []float32, parts [][]byte) {
	s := d.scaleParts(parts)
	d.readScales(dst, s[:])
}

// Decode writes elements [lo, hi) as dt to dst.
func (d *Blockwise) Decode(dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte, w Write) {
	mustFit(d, dst, dt, lo, hi, parts)
	if lo == hi {
		return
	}
	k := activeKernel()
	stream := w.streams(k, len(dst))
	var m codeMap
	d.codeMap.read(m.values[:], parts[2], 0)
	s := d.scaleParts(parts)
	start, size := lo, int64(dt.Size())
	var g groups
	for g.open(&d.blocked, k, lo, hi, s[:]); g.next(); {
		out := dst[(g.lo-start)*size : (g.hi-start)*size]
		d.piece(k, out, dt, parts[0][g.lo-start:g.hi-start], g.lo, g.scales(), &m, stream)
	}
	if stream {
		storeFence()
	}
}

// piece decodes len(codes) elements from lo on, whose blocks have the given
// scales: the parts of blocks at either end in plain Go, the whole blocks
// between by k if it can.
func (d *Blockwise) piece(k kernel, dst []byte, dt tensor.DType, codes []byte, lo int64, scales []float32, m *codeMap, stream bool) {
	size := dt.Size()
	if at := lo % d.size; at != 0 {
		n := int(min(int64(len(codes)), d.size-at))
		blockwiseRun(dst[:n*size], dt, codes[:n], &m.values, scales[0])
		dst, codes, scales = dst[n*size:], codes[n:], scales[1:]
	}
	if whole := int(int64(len(codes)) / d.size); whole > 0 {
		n := whole * int(d.size)
		// Blocks cannot be moved to a line: what is not aligned is not streamed.
		if k.blockwise(dst[:n*size], dt, codes[:n], scales[:whole], int(d.size), m, stream && toLine(dst) == 0) {
			dst, codes, scales = dst[n*size:], codes[n:], scales[whole:]
		}
	}
	for _, scale := range scales {
		n := int(min(int64(len(codes)), d.size))
		blockwiseRun(dst[:n*size], dt, codes[:n], &m.values, scale)
		dst, codes = dst[n*size:], codes[n:]
	}
}

// codeMap is a map of 256 values, in the forms that kernels want.
type codeMap struct {
	values  [256]float32
	planes  [1024]byte // the first bytes of all values, the second, and so on
	isSplit bool
}

// split fills the planes, once, and returns them.
func (m *codeMap) split() *[1024]byte {
	if !m.isSplit {
		for i, v := range m.values {
			u := math.Float32bits(v)
			m.planes[i], m.planes[256+i], m.planes[512+i], m.planes[768+i] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
		}
		m.isSplit = true
	}
	return &m.planes
}

// blockwiseRun decodes elements of one block.
func blockwiseRun(dst []byte, dt tensor.DType, codes []byte, values *[256]float32, scale float32) {
	if len(codes) >= longRun {
		var results [256]float32
		for c, v := range values {
			results[c] = v * scale
		}
		lookUp256(dst, dt, codes, &results)
		return
	}
	for len(codes) > 0 {
		var buf [chunk]float32
		n := min(chunk, len(codes))
		for i, c := range codes[:n] {
			buf[i] = values[c] * scale
		}
		tensor.Narrow(dst[:n*dt.Size()], dt, buf[:n])
		dst, codes = dst[n*dt.Size():], codes[n:]
	}
}
