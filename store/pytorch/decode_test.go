package pytorch

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"
)

// nf4Bits are the code table as golden/README.md prints it.
var nf4Bits = [16]uint32{
	0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0x00000000,
	0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000,
}

var fp4Numerators = [16]float32{0, .0625, 8, 12, 4, 6, 2, 3, 0, -.0625, -8, -12, -4, -6, -2, -3}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func codeTable(kind string) []float32 {
	table := make([]float32, 16)
	for i := range table {
		if kind == "nf4" {
			table[i] = math.Float32frombits(nf4Bits[i])
		} else {
			table[i] = fp4Numerators[i] / 12
		}
	}
	return table
}

// decode dequantizes q to float32 by the formulas of FORMATS.md.
func decode(t *testing.T, f *File, file []byte, q *Quantized, g *goldenTensor) []byte {
	t.Helper()
	packed := gather(t, f, file, q.Packed)
	var table []float32
	code := func(i int64) byte { return packed[i] }
	if q.Scheme == Scheme4Bit {
		table = codeTable(g.Kind)
		code = func(i int64) byte {
			if i%2 == 0 {
				return packed[i/2] >> 4
			}
			return packed[i/2] & 15
		}
	} else {
		table = floats(gather(t, f, file, q.QuantMap))
	}
	absmax := gather(t, f, file, q.Absmax)
	scale := func(b int64) float32 { return floats(absmax[4*b : 4*b+4])[0] }
	if q.Nested {
		inner := floats(gather(t, f, file, q.NestedAbsmax))
		nestedMap := nestedTable(t, f, file, q)
		offset := float32(q.NestedOffset)
		if q.OffsetTensor >= 0 {
			offset = floats(gather(t, f, file, q.OffsetTensor))[0]
		}
		scale = func(b int64) float32 {
			v := float32(nestedMap[absmax[b]] * inner[b/q.NestedBlockSize])
			return v + offset
		}
	}
	n, _ := g.Shape.Numel()
	out := make([]byte, 0, 4*n)
	for i := range n {
		v := float32(table[code(i)] * scale(i/q.BlockSize))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// nestedTable returns the map of the nested statistics; where the file leaves
// it out, the present-day dynamic map as another golden file has it.
func nestedTable(t *testing.T, f *File, file []byte, q *Quantized) []float32 {
	if q.NestedMap >= 0 {
		return floats(gather(t, f, file, q.NestedMap))
	}
	g, other := mustRead(t, filepath.Join(goldenDir, "bw8/single.pt"))
	return floats(gather(t, g, other, g.Quantized[0].NestedMap))
}
