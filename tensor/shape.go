package tensor

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Shape is the extent of each dimension, outermost first, in elements. A nil
// or empty Shape is a scalar. Shapes handed out by nibble are read-only.
type Shape []int64

// Numel is the number of elements. ok is false when a dimension is negative or
// the product does not fit an int64; a zero dimension does not excuse a
// product of the others that overflows.
func (s Shape) Numel() (n int64, ok bool) {
	zero := false
	n = 1
	for _, d := range s {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		if n, ok = Mul(n, d); !ok {
			return 0, false
		}
	}
	if zero {
		return 0, true
	}
	return n, true
}

// Bytes is the size in bytes of numel elements of type d, rounded down to no
// partial byte: ok is false when the size overflows or is not a whole number
// of bytes.
func Bytes(numel int64, d DType) (n int64, ok bool) {
	b, ok := Mul(numel, int64(d.Bits()))
	if !ok || b%8 != 0 {
		return 0, false
	}
	return b / 8, true
}

// Mul multiplies two non-negative numbers; ok is false on overflow of int64.
func Mul(a, b int64) (p int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if a < 0 || b < 0 || hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	return int64(lo), true
}

// String prints the shape as [4,5].
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}
