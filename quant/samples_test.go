package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"nibble/tensor"
)

// sample is a made-up tensor of one scheme, with its whole parts.
type sample struct {
	name  string
	d     Decoder
	parts [][]byte
}

// samples are made-up tensors of each scheme with about numel elements, an odd
// number of them, and the odd scale in places.
func samples(tb testing.TB, numel int64) []sample {
	tb.Helper()
	var all []sample
	for _, typ := range []string{"nf4", "fp4"} {
		for _, size := range []int64{32, 64, 256, 4096} {
			for _, nested := range []bool{false, true} {
				all = append(all, fourBitSample(tb, typ, size, numel|1, nested, oddScales))
			}
		}
	}
	for _, size := range []int64{64, 96, 100, 256, 4096} {
		for _, nested := range []bool{false, true} {
			all = append(all, blockwiseSample(tb, size, numel|1, nested, oddScales))
		}
	}
	for _, cols := range []int64{1, 63, 300, 4096} {
		all = append(all, int8Sample(tb, max(1, numel/cols), cols, oddScales))
	}
	return all
}

func fourBitSample(tb testing.TB, typ string, size, numel int64, nested bool, scales scaleMaker) sample {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(uint64(size), uint64(numel)))
	st := &State{QuantType: typ, BlockSize: size, DType: tensor.BF16, Shape: tensor.Shape{numel}}
	n := ceilDiv(numel, size)
	p := FourBitParts{
		Packed:   Stored{DType: tensor.U8, Bytes: ceilDiv(numel, 2)},
		QuantMap: vector(tensor.F32, 16),
	}
	parts := [][]byte{randomBytes(rnd, p.Packed.Bytes)}
	var stats [][]byte
	p.Absmax, p.NestedAbsmax, p.NestedMap, stats = randomScales(rnd, st, n, nested, scales)
	d, err := NewFourBit(st, p)
	if err != nil {
		tb.Fatal(err)
	}
	return sample{fmt.Sprintf("%s/block=%d/nested=%v", typ, size, nested), d, append(parts, stats...)}
}

func blockwiseSample(tb testing.TB, size, numel int64, nested bool, scales scaleMaker) sample {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(uint64(size), uint64(numel)))
	st := &State{BlockSize: size, DType: tensor.F32}
	p := BlockwiseParts{
		Codes:    Stored{DType: tensor.U8, Shape: tensor.Shape{numel}, Bytes: numel},
		QuantMap: vector(tensor.F32, 256),
	}
	var stats [][]byte
	p.Absmax, p.NestedAbsmax, p.NestedMap, stats = randomScales(rnd, st, ceilDiv(numel, size), nested, scales)
	d, err := NewBlockwise(st, p)
	if err != nil {
		tb.Fatal(err)
	}
	parts := [][]byte{randomBytes(rnd, numel), stats[0], floatBytes(randomMap(rnd))}
	return sample{fmt.Sprintf("blockwise8/block=%d/nested=%v", size, nested), d, append(parts, stats[1:]...)}
}

func int8Sample(tb testing.TB, rows, cols int64, scales scaleMaker) sample {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	d, err := NewInt8(Stored{DType: tensor.I8, Shape: tensor.Shape{rows, cols}, Bytes: rows * cols}, vector(tensor.F32, rows))
	if err != nil {
		tb.Fatal(err)
	}
	return sample{fmt.Sprintf("int8/cols=%d", cols), d, [][]byte{randomBytes(rnd, rows*cols), floatBytes(scales(rnd, rows))}}
}

func randomScales(rnd *rand.Rand, st *State, n int64, nested bool, scales scaleMaker) (absmax, nestedAbsmax, nestedMap *Stored, parts [][]byte) {
	if !nested {
		return vector(tensor.F32, n), nil, nil, [][]byte{floatBytes(scales(rnd, n))}
	}
	st.Nested = &Nested{BlockSize: 256, DType: tensor.F32, Offset: 0.0625}
	if st.BlockSize == 256 { // one that a group of scales is no multiple of
		st.Nested.BlockSize = 100
	}
	m := ceilDiv(n, st.Nested.BlockSize)
	return vector(tensor.U8, n), vector(tensor.F32, m), vector(tensor.F32, 256),
		[][]byte{randomBytes(rnd, n), floatBytes(scales(rnd, m)), floatBytes(randomMap(rnd))}
}

func vector(dt tensor.DType, n int64) *Stored {
	return &Stored{DType: dt, Shape: tensor.Shape{n}, Bytes: n * int64(dt.Size())}
}

func randomBytes(rnd *rand.Rand, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func randomMap(rnd *rand.Rand) []float32 {
	m := make([]float32, 256)
	for i := range m {
		m[i] = float32(rnd.Float64()*2 - 1)
	}
	return m
}

// scaleMaker makes n scales.
type scaleMaker func(rnd *rand.Rand, n int64) []float32

// plainScales are as weights have them.
func plainScales(rnd *rand.Rand, n int64) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(0.01 + rnd.ExpFloat64()*0.02)
	}
	return s
}

// oddScales are ordinary scales, every fourth of which is one that arithmetic
// may trip over: zeros, subnormals, overflows, infinities and NaNs with
// payloads, of either sign.
func oddScales(rnd *rand.Rand, n int64) []float32 {
	odd := []uint32{
		0x00000000, 0x00000001, 0x00000fff, 0x00400000, 0x007fffff, 0x00800000, 0x33000000, 0x33000001,
		0x33800000, 0x387fe000, 0x38800000, 0x47000000, 0x477fe000, 0x477ff000, 0x47800000, 0x7f7fffff,
		0x7f7f8000, 0x7f800000, 0x7fc00000, 0x7f812345, 0x7fd54321,
	}
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rnd.ExpFloat64() * 0.02)
		if i%4 == 3 {
			s[i] = math.Float32frombits(odd[rnd.IntN(len(odd))] | rnd.Uint32()&(1<<31))
		}
	}
	return s
}

func floatBytes(f []float32) []byte {
	b := make([]byte, 4*len(f))
	for i, v := range f {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}
