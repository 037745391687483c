package tensor

import (
	"math"

	"github.com/x448/float16"
)

// Float16 is an IEEE 754 binary16 value.
type Float16 = float16.Float16

// BFloat16 is the upper half of an IEEE 754 binary32 value.
type BFloat16 uint16

// Float32 is the value of b, which every float32 holds exactly.
func (b BFloat16) Float32() float32 { return widenBF16(uint16(b)) }

// ToFloat16 rounds f to nearest, ties to even. Values of 65520 and above
// become infinities, subnormals are kept, and a NaN keeps its sign and the top
// of its payload and becomes quiet.
func ToFloat16(f float32) Float16 { return Float16(f16Bits(math.Float32bits(f))) }

// ToBFloat16 rounds f to nearest, ties to even, by the same rules, but a NaN
// keeps its sign only, as in torch.
func ToBFloat16(f float32) BFloat16 { return BFloat16(bf16Bits(math.Float32bits(f))) }

// Bits of a float32.
const (
	signBit  = 1 << 31
	inf32    = 0x7f800000
	minNorm  = 0x38800000 // 2^-14, the smallest normal f16
	overflow = 0x47800000 // 2^16, above every finite f16
)

func f16Bits(u uint32) uint16 {
	a := u &^ signBit
	h := f16Normal(a)
	if !isNormal(a) {
		h = f16Rare(a)
	}
	return uint16(u>>16&0x8000) | h
}

// isNormal reports whether the magnitude a is normal in f16, or rounds from
// there to infinity. Nearly every weight is.
func isNormal(a uint32) bool { return a-minNorm < overflow-minNorm }

// f16Normal rebiases the exponent by 15-127 and rounds on bit 13. A carry out
// of the mantissa steps the exponent, to infinity if need be.
func f16Normal(a uint32) uint16 { return uint16((a - (127-15)<<23 + 0xfff + a>>13&1) >> 13) }

// f16Rare rounds magnitudes that are not normal in f16: zero, subnormals,
// overflows, infinity and NaNs.
func f16Rare(a uint32) uint16 {
	switch {
	case a > inf32:
		return 0x7e00 | uint16(a>>13&0x3ff)
	case a >= overflow:
		return 0x7c00
	}
	// One unit in the last place of 0.5 is 2^-24, that of a subnormal f16: the
	// addition rounds just where the result must be rounded.
	const half = 0x3f000000
	return uint16(math.Float32bits(math.Float32frombits(a)+0.5) - half)
}

func bf16Bits(u uint32) uint16 {
	if u&^signBit > inf32 {
		return uint16(u>>16&0x8000) | 0x7fc0
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// widenBF16 is a shift, as it is in torch: signalling NaNs stay so.
func widenBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

func widenF16(h uint16) float32 {
	sign, a := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	if a >= 0x7c00<<13 {
		a |= inf32
		if a != inf32 {
			a |= 1 << 22
		}
		return math.Float32frombits(sign | a)
	}
	// The bits, read as a float32, are the value times 2^(15-127), for
	// subnormals too; the product is exact.
	v := math.Float32frombits(a) * 0x1p112
	return math.Float32frombits(sign | math.Float32bits(v))
}
