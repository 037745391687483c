package quant

import (
	"nibble/internal/rule"
	"nibble/tensor"
)

// Stored is what a container says of one stored tensor. The container has
// compared Bytes with the bytes that are there; dtype and shape are claims
// that the constructors of decoders judge.
type Stored struct {
	DType tensor.DType
	Shape tensor.Shape
	Bytes int64
}

// companion names a stored part in messages, with the rule that its absence
// and its faults break.
type companion struct {
	name             string
	missing, invalid rule.ID
}

var (
	absmaxPart       = companion{"absmax", rule.Companion, rule.CompanionLen}
	mapPart          = companion{"quant_map", rule.Companion, rule.CompanionLen}
	nestedAbsmaxPart = companion{"nested_absmax", rule.Nested, rule.Nested}
	nestedMapPart    = companion{"nested_quant_map", rule.Nested, rule.Nested}
	scbPart          = companion{"SCB", rule.SCB, rule.SCB}
)

// require refuses a part that is absent.
func (c companion) require(s *Stored) error {
	if s == nil {
		return rule.New(c.missing, "missing companion %s", c.name)
	}
	return nil
}

// vector refuses a part that is absent or is not one dimension of n elements
// of one of the given types.
func (c companion) vector(s *Stored, n int64, types ...tensor.DType) error {
	if err := c.require(s); err != nil {
		return err
	}
	if !oneOf(s.DType, types) {
		return rule.New(c.invalid, "%s is %v; want %v", c.name, s.DType, types)
	}
	if len(s.Shape) != 1 || s.Shape[0] != n {
		return rule.New(c.invalid, "%s has shape %v; want [%d]", c.name, s.Shape, n)
	}
	if want, ok := tensor.Bytes(n, s.DType); !ok || s.Bytes != want {
		return rule.New(c.invalid, "%s has %d bytes; want %d %v", c.name, s.Bytes, n, s.DType)
	}
	return nil
}

func oneOf(d tensor.DType, types []tensor.DType) bool {
	for _, t := range types {
		if d == t {
			return true
		}
	}
	return false
}

// floats are the types that statistics are found in: F32 as bitsandbytes
// writes them, the others after a model was cast as a whole. They are widened
// by value.
var floats = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}

// floatPart is a stored vector of numbers whose claims were checked.
type floatPart struct{ dtype tensor.DType }

// span is the byte range of values [lo, hi).
func (p floatPart) span(lo, hi int64) (off, n int64) {
	size := int64(p.dtype.Size())
	return lo * size, (hi - lo) * size
}

// read widens len(dst) values of src, from its i-th on.
func (p floatPart) read(dst []float32, src []byte, i int) {
	size := p.dtype.Size()
	tensor.Widen(dst, src[i*size:(i+len(dst))*size], p.dtype)
}

// view is all values of src, which it aliases, or nil where reading takes more
// than loading words.
func (p floatPart) view(src []byte) []float32 {
	if p.dtype != tensor.F32 {
		return nil
	}
	return tensor.Float32s(src)
}

// ceilDiv is ⌈n/d⌉ for n >= 0 and d > 0, without overflow.
func ceilDiv(n, d int64) int64 {
	q := n / d
	if n%d != 0 {
		q++
	}
	return q
}
