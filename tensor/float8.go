package tensor

import "math"

// layout is a floating-point format of eight bits.
type layout struct {
	exponent, mantissa int // widths in bits
	bias               int
	signed             bool
	special            func(code byte) (value float32, ok bool)
}

var (
	quietNaN = math.Float32frombits(0x7fc00000)
	inf      = float32(math.Inf(1))
)

// The formats that torch and safetensors know. They differ in what the codes
// at the edges mean.
var layouts = map[DType]layout{
	// "fn": finite, no infinities; all ones is NaN.
	F8E4M3: {4, 3, 7, true, func(c byte) (float32, bool) {
		return signed(c, math.Float32frombits(0x7ff00000)), c&0x7f == 0x7f
	}},
	F8E5M2: {5, 2, 15, true, func(c byte) (float32, bool) {
		if c&3 == 0 {
			return signed(c, inf), c&0x7c == 0x7c
		}
		return signed(c, math.Float32frombits(0x7fc00000|uint32(c&3)<<21)), c&0x7c == 0x7c
	}},
	// "fnuz": finite, unsigned zero; the code of -0 is the only NaN.
	F8E4M3FNUZ: {4, 3, 8, true, onlyNegativeZero},
	F8E5M2FNUZ: {5, 2, 16, true, onlyNegativeZero},
	// Powers of two, without sign, zero or mantissa.
	F8E8M0: {8, 0, 127, false, func(c byte) (float32, bool) {
		if c == 0xff {
			return quietNaN, true
		}
		return float32(math.Ldexp(1, int(c)-127)), true
	}},
}

func onlyNegativeZero(c byte) (float32, bool) { return quietNaN, c == 0x80 }

// signed gives v the sign bit of code c, also where v is a NaN.
func signed(c byte, v float32) float32 {
	return math.Float32frombits(math.Float32bits(v) | uint32(c&0x80)<<24)
}

// value is what code c stands for; every such value is exact in float32.
func (l layout) value(c byte) float32 {
	if v, ok := l.special(c); ok {
		return v
	}
	m := int(c) & (1<<l.mantissa - 1)
	e := int(c) >> l.mantissa & (1<<l.exponent - 1)
	if e == 0 {
		e = 1 // subnormal: no implied bit
	} else {
		m |= 1 << l.mantissa
	}
	v := float32(math.Ldexp(float64(m), e-l.bias-l.mantissa))
	if l.signed {
		v = signed(c, v)
	}
	return v
}

// float8 holds all 256 values of each format.
var float8 = func() map[DType]*[256]float32 {
	all := make(map[DType]*[256]float32, len(layouts))
	for d, l := range layouts {
		t := new([256]float32)
		for c := range t {
			t[c] = l.value(byte(c))
		}
		all[d] = t
	}
	return all
}()
