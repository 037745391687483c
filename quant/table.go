package quant

import "math"

// codeTable is the table that a quant type decodes with, nil for an unknown
// type. It is bitsandbytes' get_4bit_type, to the bit.
func codeTable(quantType string) *[16]float32 {
	switch quantType {
	case "nf4":
		return &nf4
	case "fp4":
		return &fp4
	}
	return nil
}

// nf4 holds quantiles of the normal distribution, scaled to [-1, 1].
var nf4 = fromBits([16]uint32{
	0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0x00000000,
	0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000,
})

// fp4 holds sign, two bits of exponent and one of mantissa, divided by the
// largest value. Code 8 is +0, as in bitsandbytes' reference table; its CUDA
// kernels give -0.
var fp4 = fromBits([16]uint32{
	0x00000000, 0x3baaaaab, 0x3f2aaaab, 0x3f800000, 0x3eaaaaab, 0x3f000000, 0x3e2aaaab, 0x3e800000,
	0x00000000, 0xbbaaaaab, 0xbf2aaaab, 0xbf800000, 0xbeaaaaab, 0xbf000000, 0xbe2aaaab, 0xbe800000,
})

func fromBits(bits [16]uint32) (t [16]float32) {
	for i, b := range bits {
		t[i] = math.Float32frombits(b)
	}
	return t
}
