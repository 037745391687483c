package quant

import (
	"bytes"
	"testing"

	"nibble/tensor"
)

// A model cast as a whole has statistics in other types: they are read by value.
func TestStatisticsAreReadByValue(t *testing.T) {
	for _, nested := range []bool{false, true} {
		for _, dt := range floats {
			s := fourBitSample(t, "nf4", 32, 32*300, nested, plainScales)
			cast := recast(t, s, dt)
			// The same tensor in f32, from values rounded to dt.
			rounded := sample{s.name, s.d, [][]byte{s.parts[0]}}
			for _, p := range s.parts[1:] {
				rounded.parts = append(rounded.parts, roundPart(p, dt, len(p) == 300))
			}
			if !bytes.Equal(decodeAll(cast.d, tensor.F32, cast.parts), decodeAll(rounded.d, tensor.F32, rounded.parts)) {
				t.Errorf("nested=%v statistics of %v: other values", nested, dt)
			}
		}
	}
}

// recast stores the statistics of a four-bit sample in another type.
func recast(t *testing.T, s sample, dt tensor.DType) sample {
	t.Helper()
	st := &State{QuantType: "nf4", BlockSize: 32, DType: tensor.BF16, Shape: tensor.Shape{s.d.Numel()}}
	p := FourBitParts{Packed: Stored{Bytes: s.d.Numel() / 2}, QuantMap: vector(dt, 16)}
	parts := [][]byte{s.parts[0]}
	store := func(part []byte) *Stored {
		values := make([]float32, len(part)/4)
		tensor.Widen(values, part, tensor.F32)
		b := make([]byte, len(values)*dt.Size())
		tensor.Narrow(b, dt, values)
		tensor.LittleEndian(b, b, dt.Size())
		parts = append(parts, b)
		return vector(dt, int64(len(values)))
	}
	if s.d.Parts() == 2 {
		p.Absmax = store(s.parts[1])
	} else {
		st.Nested = &Nested{256, tensor.F32, 0.0625}
		p.Absmax = vector(tensor.U8, int64(len(s.parts[1])))
		parts = append(parts, s.parts[1])
		p.NestedAbsmax, p.NestedMap = store(s.parts[2]), store(s.parts[3])
	}
	d, err := NewFourBit(st, p)
	if err != nil {
		t.Fatal(err)
	}
	return sample{s.name, d, parts}
}

// roundPart rounds float32 values to dt and back; codes stay.
func roundPart(part []byte, dt tensor.DType, codes bool) []byte {
	if codes {
		return part
	}
	values := make([]float32, len(part)/4)
	tensor.Widen(values, part, tensor.F32)
	for i, v := range values {
		values[i] = roundTo(v, dt)
	}
	return floatBytes(values)
}

// With a nested dtype of 16 bits, product, offset and sum are each rounded to
// it. The numbers are chosen by hand, so that leaving any one out shows:
// 1+2^-8 is halfway between two bf16 and goes to 1, which is even.
func TestNestedArithmeticIsRounded(t *testing.T) {
	for name, c := range map[string]struct {
		value, absmax float32
		offset        float64
		want          float32
	}{
		"product": {1, 1 + 0x1p-8, 0x1p-9, 1},                     // else 1+2^-8+2^-9 goes up
		"offset":  {1, 1, 0x1p-8 + 0x1p-20, 1},                    // else the sum lies above halfway
		"sum":     {1, 1, 0x1p-7 + 0x1p-8, 1 + 0x1p-6},            // 1+2^-7 is odd, so halfway goes up
		"f32":     {1, 1 + 0x1p-8, 0x1p-20, 1 + 0x1p-8 + 0x1p-20}, // nothing is rounded that fits
	} {
		t.Run(name, func(t *testing.T) {
			forEachKernel(t, func(t *testing.T) {
				round := tensor.BF16
				if name == "f32" {
					round = tensor.F32
				}
				st := &State{QuantType: "nf4", BlockSize: 32, DType: tensor.F32, Shape: tensor.Shape{1024}}
				st.Nested = &Nested{256, round, c.offset}
				d, err := NewFourBit(st, FourBitParts{
					Packed: Stored{Bytes: 512}, QuantMap: vector(tensor.F32, 16), Absmax: vector(tensor.U8, 32),
					NestedAbsmax: vector(tensor.F32, 1), NestedMap: vector(tensor.F32, 256),
				})
				if err != nil {
					t.Fatal(err)
				}
				nestedMap := make([]float32, 256)
				nestedMap[0] = c.value
				scales := make([]float32, 32)
				d.Scales(scales, [][]byte{make([]byte, 512), make([]byte, 32), floatBytes([]float32{c.absmax}), floatBytes(nestedMap)})
				for i, s := range scales {
					if s != c.want {
						t.Fatalf("scale %d is %b; want %b", i, s, c.want)
					}
				}
			})
		})
	}
}
