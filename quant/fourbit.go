package quant

import (
	"encoding/binary"
	"math"

	"nibble/internal/rule"
	"nibble/tensor"
)

// FourBitParts are the stored parts of a four-bit tensor, nil where the
// checkpoint has none.
type FourBitParts struct {
	Packed       Stored // the codes, two a byte; its dtype and shape say nothing
	Absmax       *Stored
	QuantMap     *Stored
	NestedAbsmax *Stored
	NestedMap    *Stored
}

// FourBit decodes nf4 and fp4. Its parts are the packed codes, absmax and, when
// nested, the nested absmax and the nested map.
//
// Byte j holds element 2j in its high nibble and element 2j+1 in its low one
// (BNB-002). An element is table[code] * scale, rounded to float32, then to
// the type asked for.
type FourBit struct {
	blocked
	table *[16]float32
}

// NewFourBit checks a state and its companions against each other and the
// packed bytes. Errors are *rule.Error.
func NewFourBit(st *State, p FourBitParts) (*FourBit, error) {
	if err := st.Check(); err != nil {
		return nil, err
	}
	n, _ := st.Shape.Numel()
	if want := ceilDiv(n, 2); p.Packed.Bytes != want {
		return nil, rule.New(rule.CompanionLen, "packed codes have %d bytes; shape %v wants %d", p.Packed.Bytes, st.Shape, want)
	}
	s, err := newScales(ceilDiv(n, st.BlockSize), st.Nested, p.Absmax, p.NestedAbsmax, p.NestedMap)
	if err != nil {
		return nil, err
	}
	// The map plays no part in decoding (BNB-003), but a file without it, or
	// with another number of values, is not what bitsandbytes wrote.
	if err := mapPart.vector(p.QuantMap, 16, floats...); err != nil {
		return nil, err
	}
	return &FourBit{blocked{n, st.BlockSize, st.DType, s}, codeTable(st.QuantType)}, nil
}

// Parts is 2, or 4 when nested.
func (d *FourBit) Parts() int { return 1 + d.scales.parts() }

// Span is the byte range of part p that elements [lo, hi) need.
func (d *FourBit) Span(p int, lo, hi int64) (off, n int64) {
	if lo == hi {
		return 0, 0
	}
	if p == 0 {
		return lo / 2, ceilDiv(hi, 2) - lo/2
	}
	first, end := d.blockRange(lo, hi)
	return d.scales.span(p-1, first, end)
}

// Table holds what the sixteen codes stand for, before scaling.
func (d *FourBit) Table() [16]float32 { return *d.table }

// Scales computes the scale of every block to dst, of length Blocks, from the
// whole parts.
func (d *FourBit) Scales(dst []float32, parts [][]byte) { d.readScales(dst, parts[1:]) }

// Decode writes elements [lo, hi) as dt to dst.
func (d *FourBit) Decode(dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte, w Write) {
	mustFit(d, dst, dt, lo, hi, parts)
	k := activeKernel()
	stream := w.streams(k, len(dst))
	codes, start, size := parts[0], lo, int64(dt.Size())
	var g groups
	for g.open(&d.blocked, k, lo, hi, parts[1:]); g.next(); {
		out := dst[(g.lo-start)*size : (g.hi-start)*size]
		d.piece(k, out, dt, codes[g.lo/2-start/2:], g.lo, g.hi, g.scales(), stream)
	}
	if stream {
		storeFence()
	}
}

// piece decodes elements [lo, hi), whose codes begin in codes[0] and whose
// blocks have the given scales: the parts of blocks at either end in plain Go,
// the whole blocks between by k.
func (d *FourBit) piece(k kernel, dst []byte, dt tensor.DType, codes []byte, lo, hi int64, scales []float32, stream bool) {
	size := dt.Size()
	if at := lo % d.size; at != 0 {
		n := int(min(hi-lo, d.size-at))
		fourBitRun(dst[:n*size], dt, codes, int(lo&1), d.table, scales[0])
		dst, codes, scales = dst[n*size:], codes[(int(lo&1)+n)/2:], scales[1:]
		lo += int64(n)
	}
	if whole := int((hi - lo) / d.size); whole > 0 {
		n := whole * int(d.size)
		d.whole(k, dst[:n*size], dt, codes[:n/2], scales[:whole], stream)
		dst, codes, scales = dst[n*size:], codes[n/2:], scales[whole:]
		lo += int64(n)
	}
	if lo < hi {
		fourBitRun(dst, dt, codes, 0, d.table, scales[0])
	}
}

// whole decodes whole blocks.
func (d *FourBit) whole(k kernel, dst []byte, dt tensor.DType, codes []byte, scales []float32, stream bool) {
	half := int(d.size / 2)
	switch {
	case k == generic:
		for i, scale := range scales {
			block := len(dst) / len(scales)
			fourBitRun(dst[i*block:(i+1)*block], dt, codes[i*half:], 0, d.table, scale)
		}
	case stream && toLine(dst) != 0:
		d.bounce(k, dst, dt, codes, scales)
	default:
		k.fourBit(dst, dt, codes, scales, d.table, half, stream)
	}
}

// bounce streams to a destination that is not aligned, by way of a buffer in
// the first-level cache.
func (d *FourBit) bounce(k kernel, dst []byte, dt tensor.DType, codes []byte, scales []float32) {
	var buf [4096 * 4]byte // the largest block as float32
	half := int(d.size / 2)
	block := 2 * half * dt.Size()
	for len(scales) > 0 {
		n := min(len(scales), len(buf)/block)
		k.fourBit(buf[:n*block], dt, codes[:n*half], scales[:n], d.table, half, false)
		streamOut(dst[:n*block], buf[:n*block])
		dst, codes, scales = dst[n*block:], codes[n*half:], scales[n:]
	}
}

// fourBitRun decodes elements of one block: as many as dst holds, from the
// high (odd = 0) or the low nibble (odd = 1) of codes[0] on. A block has one
// scale, so it has only sixteen possible values: they are scaled and rounded
// once, and the rest is looking up.
func fourBitRun(dst []byte, dt tensor.DType, codes []byte, odd int, table *[16]float32, scale float32) {
	var scaled [16]float32
	for i, v := range table {
		scaled[i] = v * scale
	}
	if dt == tensor.F32 {
		lookUp32(dst, codes, odd, &scaled)
		return
	}
	var words [16]uint16
	if dt == tensor.F16 {
		for i, v := range scaled {
			words[i] = uint16(tensor.ToFloat16(v))
		}
	} else {
		for i, v := range scaled {
			words[i] = uint16(tensor.ToBFloat16(v))
		}
	}
	lookUp16(dst, codes, odd, &words)
}

func lookUp16(dst, codes []byte, odd int, table *[16]uint16) {
	if odd == 1 && len(dst) > 0 {
		binary.NativeEndian.PutUint16(dst, table[codes[0]&15])
		dst, codes = dst[2:], codes[1:]
	}
	pairs := len(dst) / 4
	for j, c := range codes[:pairs] {
		d := dst[4*j : 4*j+4]
		binary.NativeEndian.PutUint16(d, table[c>>4])
		binary.NativeEndian.PutUint16(d[2:], table[c&15])
	}
	if rest := dst[4*pairs:]; len(rest) > 0 {
		binary.NativeEndian.PutUint16(rest, table[codes[pairs]>>4])
	}
}

func lookUp32(dst, codes []byte, odd int, table *[16]float32) {
	if odd == 1 && len(dst) > 0 {
		binary.NativeEndian.PutUint32(dst, math.Float32bits(table[codes[0]&15]))
		dst, codes = dst[4:], codes[1:]
	}
	pairs := len(dst) / 8
	for j, c := range codes[:pairs] {
		d := dst[8*j : 8*j+8]
		binary.NativeEndian.PutUint32(d, math.Float32bits(table[c>>4]))
		binary.NativeEndian.PutUint32(d[4:], math.Float32bits(table[c&15]))
	}
	if rest := dst[8*pairs:]; len(rest) > 0 {
		binary.NativeEndian.PutUint32(rest, math.Float32bits(table[codes[pairs]>>4]))
	}
}
