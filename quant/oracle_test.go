package quant

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/x448/float16"

	"nibble/tensor"
)

// The format, an element at a time and straight from its definition: the
// decoders answer to this, and it to nothing of theirs but their parameters.

func oracleScale(s *scales, absmax, nested, nestedMap []byte, b int64) float32 {
	if s.nested == nil {
		return floatAt(absmax, b)
	}
	product := float32(floatAt(nestedMap, int64(absmax[b])) * floatAt(nested, b/s.nested.blockSize))
	return float32(product + s.nested.offset)
}

func oracle(d Decoder, parts [][]byte, i int64) float32 {
	part := func(p int) []byte {
		if p < len(parts) {
			return parts[p]
		}
		return nil
	}
	switch d := d.(type) {
	case *FourBit:
		code := parts[0][i/2] >> 4
		if i%2 == 1 {
			code = parts[0][i/2] & 15
		}
		return float32(d.table[code] * oracleScale(d.scales, parts[1], part(2), part(3), i/d.size))
	case *Blockwise:
		return float32(floatAt(parts[2], int64(parts[0][i])) * oracleScale(d.scales, parts[1], part(3), part(4), i/d.size))
	case *Int8:
		return float32(float32(float32(int8(parts[0][i]))*floatAt(parts[1], i/d.cols)) * float32(1.0/127))
	}
	panic("no such decoder")
}

func floatAt(b []byte, i int64) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// Every scheme, with scales that arithmetic may trip over, must give what the
// definition gives. Kernels are compared with plain Go elsewhere.
func TestGenericAgainstOracle(t *testing.T) {
	use(t, "generic")
	for _, s := range samples(t, 9000) {
		f32 := decodeAll(s.d, tensor.F32, s.parts)
		f16 := decodeAll(s.d, tensor.F16, s.parts)
		bf16 := decodeAll(s.d, tensor.BF16, s.parts)
		for i := range s.d.Numel() {
			want := oracle(s.d, s.parts, i)
			got := math.Float32frombits(binary.NativeEndian.Uint32(f32[4*i:]))
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("%s: element %d is %v; want %v", s.name, i, got, want)
			}
			if h := binary.NativeEndian.Uint16(f16[2*i:]); h != float16.Fromfloat32(got).Bits() {
				t.Fatalf("%s: element %d is f16 %04x of %v", s.name, i, h, got)
			}
			if h := binary.NativeEndian.Uint16(bf16[2*i:]); h != uint16(tensor.ToBFloat16(got)) {
				t.Fatalf("%s: element %d is bf16 %04x of %v", s.name, i, h, got)
			}
		}
	}
}
