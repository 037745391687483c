package quant

import (
	"math"
	"slices"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

// fourBitClaims is a state and companions that fit: 70 elements in blocks of 32.
func fourBitClaims(nested bool) (*State, FourBitParts) {
	st := &State{QuantType: "nf4", BlockSize: 32, DType: tensor.F16, Shape: tensor.Shape{7, 10}}
	p := FourBitParts{Packed: Stored{Bytes: 35}, Absmax: vector(tensor.F32, 3), QuantMap: vector(tensor.F32, 16)}
	if nested {
		st.Nested = &Nested{2, tensor.F32, 0.5}
		p.Absmax, p.NestedAbsmax, p.NestedMap = vector(tensor.U8, 3), vector(tensor.F32, 2), vector(tensor.F32, 256)
	}
	return st, p
}

// One claim is spoiled at a time; each must be refused with its rule.
func TestNewFourBitRefuses(t *testing.T) {
	column := &Stored{DType: tensor.F32, Shape: tensor.Shape{3, 1}, Bytes: 12}
	for name, c := range map[string]struct {
		nested bool
		spoil  func(*State, *FourBitParts)
		rule   rule.ID
		word   string
	}{
		"type":               {false, func(s *State, _ *FourBitParts) { s.QuantType = "int4" }, rule.QuantType, "int4"},
		"no type":            {false, func(s *State, _ *FourBitParts) { s.QuantType = "" }, rule.QuantType, "nf4 or fp4"},
		"name":               {false, func(s *State, _ *FourBitParts) { s.NameType = "fp4" }, rule.QuantClash, "fp4"},
		"blocksize":          {false, func(s *State, _ *FourBitParts) { s.BlockSize = 63 }, rule.QuantType, "63"},
		"blocksize 16":       {false, func(s *State, _ *FourBitParts) { s.BlockSize = 16 }, rule.QuantType, "16"},
		"dtype":              {false, func(s *State, _ *FourBitParts) { s.DType = tensor.I8 }, rule.QuantShape, "i8"},
		"no dtype":           {false, func(s *State, _ *FourBitParts) { s.DType = tensor.Stored }, rule.QuantShape, "dtype"},
		"negative shape":     {false, func(s *State, _ *FourBitParts) { s.Shape[0] = -7 }, rule.QuantShape, "negative"},
		"overflow":           {false, func(s *State, _ *FourBitParts) { s.Shape[0] = math.MaxInt64 }, rule.QuantShape, "overflows"},
		"packed short":       {false, func(_ *State, p *FourBitParts) { p.Packed.Bytes = 34 }, rule.CompanionLen, "35"},
		"packed long":        {false, func(_ *State, p *FourBitParts) { p.Packed.Bytes = 36 }, rule.CompanionLen, "35"},
		"no absmax":          {false, func(_ *State, p *FourBitParts) { p.Absmax = nil }, rule.Companion, "missing companion absmax"},
		"no quant_map":       {false, func(_ *State, p *FourBitParts) { p.QuantMap = nil }, rule.Companion, "missing companion quant_map"},
		"quant_map type":     {false, func(_ *State, p *FourBitParts) { p.QuantMap = vector(tensor.F64, 16) }, rule.CompanionLen, "f64"},
		"absmax type":        {false, func(_ *State, p *FourBitParts) { p.Absmax = vector(tensor.F64, 3) }, rule.CompanionLen, "f64"},
		"absmax short":       {false, func(_ *State, p *FourBitParts) { p.Absmax = vector(tensor.F32, 2) }, rule.CompanionLen, "want [3]"},
		"absmax column":      {false, func(_ *State, p *FourBitParts) { p.Absmax = column }, rule.CompanionLen, "[3,1]"},
		"absmax bytes":       {false, func(_ *State, p *FourBitParts) { p.Absmax.Bytes = 11 }, rule.CompanionLen, "11 bytes"},
		"nested beside F32":  {false, func(_ *State, p *FourBitParts) { p.NestedMap = vector(tensor.F32, 256) }, rule.Nested, "not quantized"},
		"nested_absmax gone": {true, func(_ *State, p *FourBitParts) { p.NestedAbsmax = nil }, rule.Nested, "missing companion nested_absmax"},
		"nested map gone":    {true, func(_ *State, p *FourBitParts) { p.NestedMap = nil }, rule.Nested, "missing companion nested_quant_map"},
		"nested map short":   {true, func(_ *State, p *FourBitParts) { p.NestedMap = vector(tensor.F32, 255) }, rule.Nested, "[256]"},
		"nested state gone":  {true, func(s *State, _ *FourBitParts) { s.Nested = nil }, rule.Nested, "says nothing"},
		"nested blocksize":   {true, func(s *State, _ *FourBitParts) { s.Nested.BlockSize = -1 }, rule.Nested, "nested_blocksize"},
		"nested dtype":       {true, func(s *State, _ *FourBitParts) { s.Nested.DType = tensor.Stored }, rule.Nested, "nested_dtype"},
		"offset NaN":         {true, func(s *State, _ *FourBitParts) { s.Nested.Offset = math.NaN() }, rule.Nested, "nested_offset"},
		"offset beyond f32":  {true, func(s *State, _ *FourBitParts) { s.Nested.Offset = 1e39 }, rule.Nested, "nested_offset"},
		"nested_absmax long": {true, func(_ *State, p *FourBitParts) { p.NestedAbsmax = vector(tensor.F32, 3) }, rule.Nested, "want [2]"},
		"nested absmax F32":  {true, func(_ *State, p *FourBitParts) { p.Absmax = vector(tensor.F32, 3) }, rule.Nested, "not quantized"},
	} {
		t.Run(name, func(t *testing.T) {
			st, p := fourBitClaims(c.nested)
			if _, err := NewFourBit(st, p); err != nil {
				t.Fatalf("before it was spoiled: %v", err)
			}
			c.spoil(st, &p)
			_, err := NewFourBit(st, p)
			mustBreak(t, err, c.rule, c.word)
		})
	}
}

func TestNewBlockwiseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*State, *BlockwiseParts)
		rule  rule.ID
		word  string
	}{
		"type":        {func(s *State, _ *BlockwiseParts) { s.QuantType = "nf4" }, rule.QuantType, "nf4"},
		"blocksize":   {func(s *State, _ *BlockwiseParts) { s.BlockSize = 0 }, rule.QuantType, "positive"},
		"dtype":       {func(s *State, _ *BlockwiseParts) { s.DType = tensor.Stored }, rule.QuantShape, "dtype"},
		"codes type":  {func(_ *State, p *BlockwiseParts) { p.Codes.DType = tensor.I8 }, rule.CompanionLen, "i8"},
		"codes short": {func(_ *State, p *BlockwiseParts) { p.Codes.Bytes = 6 }, rule.CompanionLen, "6 bytes"},
		"codes shape": {func(_ *State, p *BlockwiseParts) { p.Codes.Shape = tensor.Shape{-7} }, rule.QuantShape, "negative"},
		"shape":       {func(s *State, _ *BlockwiseParts) { s.Shape = tensor.Shape{8} }, rule.QuantShape, "[8]"},
		"absmax":      {func(_ *State, p *BlockwiseParts) { p.Absmax = nil }, rule.Companion, "missing companion absmax"},
		"absmax long": {func(_ *State, p *BlockwiseParts) { p.Absmax = vector(tensor.F32, 3) }, rule.CompanionLen, "want [2]"},
		"map":         {func(_ *State, p *BlockwiseParts) { p.QuantMap = nil }, rule.Companion, "missing companion quant_map"},
		"map short":   {func(_ *State, p *BlockwiseParts) { p.QuantMap = vector(tensor.F32, 16) }, rule.CompanionLen, "[256]"},
	} {
		t.Run(name, func(t *testing.T) {
			st := &State{BlockSize: 5, DType: tensor.F32}
			p := BlockwiseParts{Stored{DType: tensor.U8, Shape: tensor.Shape{7}, Bytes: 7}, vector(tensor.F32, 2), vector(tensor.F32, 256), nil, nil}
			if _, err := NewBlockwise(st, p); err != nil {
				t.Fatalf("before it was spoiled: %v", err)
			}
			c.spoil(st, &p)
			_, err := NewBlockwise(st, p)
			mustBreak(t, err, c.rule, c.word)
		})
	}
}

func TestNewInt8Refuses(t *testing.T) {
	weight := Stored{DType: tensor.I8, Shape: tensor.Shape{2, 3}, Bytes: 6}
	for name, c := range map[string]struct {
		weight Stored
		scb    *Stored
		word   string
	}{
		"no SCB":       {weight, nil, "missing companion SCB"},
		"SCB by value": {weight, vector(tensor.F32, 3), "want [2]"},
		"SCB scalar":   {weight, vector(tensor.F32, 1), "want [2]"},
		"SCB type":     {weight, vector(tensor.F16, 2), "f16"},
		"rank":         {Stored{DType: tensor.I8, Shape: tensor.Shape{6}, Bytes: 6}, vector(tensor.F32, 6), "[out,in]"},
		"type":         {Stored{DType: tensor.U8, Shape: tensor.Shape{2, 3}, Bytes: 6}, vector(tensor.F32, 2), "u8"},
		"bytes":        {Stored{DType: tensor.I8, Shape: tensor.Shape{2, 3}, Bytes: 5}, vector(tensor.F32, 2), "5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewInt8(c.weight, c.scb)
			mustBreak(t, err, rule.SCB, c.word)
		})
	}
}

func TestCheckWeightFormat(t *testing.T) {
	if err := CheckWeightFormat([]byte{0}); err != nil {
		t.Errorf("row: %v", err)
	}
	if err := CheckWeightFormatName("row"); err != nil {
		t.Errorf("row: %v", err)
	}
	for content, word := range map[string]string{
		"\x01": "col32", "\x02": "col_turing", "\x03": "col_ampere", "\x04": "4", "": "0 bytes", "\x00\x00": "2 bytes",
	} {
		mustBreak(t, CheckWeightFormat([]byte(content)), rule.WeightFormat, word)
	}
	mustBreak(t, CheckWeightFormatName("col_turing"), rule.WeightFormat, "col_turing")
	// bitsandbytes takes a Python int as well.
	if err := CheckWeightFormatName("0"); err != nil {
		t.Error(err)
	}
	for number, word := range map[string]string{"1": "col32", "2": "col_turing", "3": "col_ampere", "4": "is 4", "-1": "-1"} {
		mustBreak(t, CheckWeightFormatName(number), rule.WeightFormat, word)
	}
}

// Tensors without elements are legal and decode to nothing.
func TestEmptyTensors(t *testing.T) {
	st, p := fourBitClaims(false)
	st.Shape, p.Packed.Bytes, p.Absmax = tensor.Shape{0, 10}, 0, vector(tensor.F32, 0)
	four, err := NewFourBit(st, p)
	if err != nil {
		t.Fatal(err)
	}
	eight, err := NewInt8(Stored{DType: tensor.I8, Shape: tensor.Shape{4, 0}}, vector(tensor.F32, 4))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Decoder{four, eight, NewPlain(0, tensor.F4)} {
		for p := range d.Parts() {
			if off, n := d.Span(p, 0, 0); off != 0 || n != 0 {
				t.Errorf("%T: span of part %d is (%d, %d)", d, p, off, n)
			}
		}
		dt := d.DType()
		d.Decode(nil, dt, 0, 0, make([][]byte, d.Parts()), Auto)
	}
}

// A span holds what its elements need and no block more.
func TestSpansAreMinimal(t *testing.T) {
	four := fourBitSample(t, "nf4", 32, 32*600, true, plainScales).d
	blockwise := blockwiseSample(t, 100, 30000, true, plainScales).d
	int8 := int8Sample(t, 20, 10, plainScales).d
	for _, c := range []struct {
		d        Decoder
		lo, hi   int64
		off, len []int64
	}{
		{four, 1, 2, []int64{0, 0, 0, 0}, []int64{1, 1, 4, 1024}},
		{four, 31, 33, []int64{15, 0, 0, 0}, []int64{2, 2, 4, 1024}},
		{four, 32 * 255, 32 * 257, []int64{16 * 255, 255, 0, 0}, []int64{32, 2, 8, 1024}},
		{four, 32 * 512, 32*512 + 3, []int64{16 * 512, 512, 8, 0}, []int64{2, 1, 4, 1024}},
		{blockwise, 25599, 25601, []int64{25599, 255, 0, 0, 0}, []int64{2, 2, 1024, 8, 1024}},
		{int8, 9, 11, []int64{9, 0}, []int64{2, 8}},
		{int8, 10, 20, []int64{10, 4}, []int64{10, 4}},
		{NewPlain(12, tensor.F6E2M3), 4, 12, []int64{3}, []int64{6}},
		{NewPlain(12, tensor.F4), 2, 4, []int64{1}, []int64{1}},
		{NewPlain(12, tensor.C128), 2, 4, []int64{32}, []int64{32}},
	} {
		for p := range c.d.Parts() {
			if off, n := c.d.Span(p, c.lo, c.hi); off != c.off[p] || n != c.len[p] {
				t.Errorf("%T [%d, %d): part %d is (%d, %d); want (%d, %d)", c.d, c.lo, c.hi, p, off, n, c.off[p], c.len[p])
			}
		}
	}
}

// What a decoder says it can do, it does; the rest panics.
func TestPlainConversions(t *testing.T) {
	all := []tensor.DType{
		tensor.Bool, tensor.U8, tensor.I8, tensor.U16, tensor.I16, tensor.U32, tensor.I32, tensor.U64, tensor.I64,
		tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.C64, tensor.C128, tensor.F8E4M3, tensor.F8E5M2,
		tensor.F8E8M0, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ, tensor.F4, tensor.F6E2M3, tensor.F6E3M2,
	}
	targets := []tensor.DType{tensor.F16, tensor.BF16, tensor.F32}
	for _, from := range all {
		d := NewPlain(8, from)
		src := make([]byte, from.Bits())
		for _, to := range all {
			want := to == from || from.IsFloat() && slices.Contains(targets, to)
			if d.Can(to) != want {
				t.Errorf("%v to %v: Can is %v", from, to, d.Can(to))
			}
			dst := make([]byte, to.Bits())
			if panicked := panics(func() { d.Decode(dst, to, 0, 8, [][]byte{src}, Auto) }); panicked == want {
				t.Errorf("%v to %v: panicked is %v", from, to, panicked)
			}
		}
	}
}

// Errors of the caller panic before anything is read or written.
func TestDecodePanicsOnMisuse(t *testing.T) {
	s := fourBitSample(t, "nf4", 32, 64, false, plainScales)
	decode := func(dst int, dt tensor.DType, lo, hi int64, parts ...[]byte) func() {
		return func() { s.d.Decode(make([]byte, dst), dt, lo, hi, parts, Auto) }
	}
	codes, absmax := s.parts[0], s.parts[1]
	if panics(decode(128, tensor.F16, 0, 64, codes, absmax)) {
		t.Fatal("a correct call panics")
	}
	for name, call := range map[string]func(){
		"short destination": decode(126, tensor.F16, 0, 64, codes, absmax),
		"long destination":  decode(130, tensor.F16, 0, 64, codes, absmax),
		"dtype":             decode(64, tensor.I8, 0, 64, codes, absmax),
		"stored":            decode(0, tensor.Stored, 0, 64, codes, absmax),
		"beyond the end":    decode(130, tensor.F16, 0, 65, codes, absmax),
		"negative":          decode(128, tensor.F16, -1, 63, codes, absmax),
		"backwards":         decode(0, tensor.F16, 2, 1, codes, absmax),
		"codes short":       decode(128, tensor.F16, 0, 64, codes[:31], absmax),
		"absmax short":      decode(128, tensor.F16, 0, 64, codes, absmax[:7]),
		"part missing":      decode(128, tensor.F16, 0, 64, codes),
		"half a byte":       func() { NewPlain(4, tensor.F4).Span(0, 1, 2) },
		"partial bytes":     func() { NewPlain(3, tensor.F4) },
		"no dtype":          func() { NewPlain(3, tensor.Stored) },
	} {
		if !panics(call) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func panics(call func()) (p bool) {
	defer func() { p = recover() != nil }()
	call()
	return false
}
