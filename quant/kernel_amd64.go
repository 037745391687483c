//go:build !purego

package quant

//go:generate sh _asm/generate.sh

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"nibble/tensor"
)

// detect is the ladder: each kernel is gated on every feature that it uses.
func detect() []kernel {
	x := &cpu.X86
	has256 := x.HasAVX2 && x.HasF16C
	has512 := has256 && x.HasAVX512F && x.HasAVX512BW
	switch {
	case has512 && x.HasAVX512VBMI:
		return []kernel{avx512vbmi, avx512, avx2, generic}
	case has512:
		return []kernel{avx512, avx2, generic}
	case has256:
		return []kernel{avx2, generic}
	}
	return []kernel{generic}
}

// lineSize is the alignment that streaming needs.
const lineSize = 64

// toLine is the number of bytes from the first of b to the next cache line, 0
// when it begins one.
func toLine(b []byte) int { return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineSize) }

// fourBit decodes len(scales) whole blocks of half bytes of codes each. To
// stream, dst must be aligned.
func (k kernel) fourBit(dst []byte, dt tensor.DType, codes []byte, scales []float32, table *[16]float32, half int, stream bool) {
	blocks := len(scales)
	if blocks == 0 {
		return
	}
	// The last bytes that assembly will touch: a wrong length panics here.
	_, _ = codes[blocks*half-1], dst[2*blocks*half*dt.Size()-1]
	raceRead(codes[:blocks*half])
	raceWrite(dst)
	d, c, s := &dst[0], &codes[0], &scales[0]
	switch {
	case k >= avx512 && dt == tensor.F16:
		fourBitF16AVX512(d, c, s, table, blocks, half, stream)
	case k >= avx512 && dt == tensor.BF16:
		fourBitBF16AVX512(d, c, s, table, blocks, half, stream)
	case k >= avx512:
		fourBitF32AVX512(d, c, s, table, blocks, half, stream)
	case dt == tensor.F16:
		fourBitF16AVX2(d, c, s, table, blocks, half, stream)
	case dt == tensor.BF16:
		fourBitBF16AVX2(d, c, s, table, blocks, half, stream)
	default:
		fourBitF32AVX2(d, c, s, table, blocks, half, stream)
	}
}

// nested computes scales of one nested block, as many as come in sixteens, and
// returns how many that is.
func (k kernel) nested(dst []float32, codes []byte, codeMap *[256]float32, scale, offset float32) int {
	n := len(codes) &^ 15
	if k < avx512 || n == 0 {
		return 0
	}
	raceRead(codes[:n])
	nestedScalesAVX512(&dst[:n][0], &codes[0], codeMap, scale, offset, n)
	return n
}

// blockwise decodes len(scales) whole blocks of size elements each, and reports
// whether it has: odd sizes have no kernel. To stream, dst must be aligned.
func (k kernel) blockwise(dst []byte, dt tensor.DType, codes []byte, scales []float32, size int, m *codeMap, stream bool) bool {
	blocks := len(scales)
	if k == generic || size%64 != 0 || blocks == 0 {
		return false
	}
	_, _ = codes[blocks*size-1], dst[blocks*size*dt.Size()-1]
	raceRead(codes[:blocks*size])
	raceWrite(dst)
	d, c, s := &dst[0], &codes[0], &scales[0]
	switch {
	case k == avx512vbmi && dt == tensor.F16:
		blockwiseF16VBMI(d, c, s, m.split(), blocks, size, stream)
	case k == avx512vbmi && dt == tensor.BF16 && size >= longBlock:
		for i, scale := range scales {
			var results [512]byte
			roundTableBF16VBMI(&results, &m.values, scale, 1)
			lookUp16VBMI(&dst[2*i*size], &codes[i*size], &results, size, stream)
		}
	case k == avx512vbmi && dt == tensor.BF16:
		blockwiseBF16VBMI(d, c, s, m.split(), blocks, size, stream)
	case k == avx512vbmi:
		blockwiseF32VBMI(d, c, s, m.split(), blocks, size, stream)
	case dt == tensor.F16:
		blockwiseF16AVX2(d, c, s, &m.values, blocks, size, stream)
	case dt == tensor.BF16:
		blockwiseBF16AVX2(d, c, s, &m.values, blocks, size, stream)
	default:
		blockwiseF32AVX2(d, c, s, &m.values, blocks, size, stream)
	}
	return true
}

// The numbers of elements with one scale from which a table of all 256 results
// pays. To f16, where rounding is one instruction, blocks never pay.
const (
	longBlock = 512
	longRow   = 256
)

// int8 decodes elements of one row, as many as come in units of 64, and returns
// how many that is. To stream, dst must be aligned.
func (k kernel) int8(dst []byte, dt tensor.DType, codes []byte, scb float32, stream bool) int {
	n := len(codes) &^ 63
	if k == generic || n == 0 {
		return 0
	}
	_ = dst[n*dt.Size()-1]
	raceRead(codes[:n])
	raceWrite(dst[:n*dt.Size()])
	d, c := &dst[0], &codes[0]
	switch {
	case k == avx512vbmi && dt == tensor.F16 && n >= longRow:
		var results [512]byte
		roundTableF16VBMI(&results, &int8Values, scb, inv127)
		lookUp16VBMI(d, c, &results, n, stream)
	case k == avx512vbmi && dt == tensor.BF16 && n >= longRow:
		var results [512]byte
		roundTableBF16VBMI(&results, &int8Values, scb, inv127)
		lookUp16VBMI(d, c, &results, n, stream)
	case k >= avx512 && dt == tensor.F16:
		int8F16AVX512(d, c, scb, n, stream)
	case k >= avx512 && dt == tensor.BF16:
		int8BF16AVX512(d, c, scb, n, stream)
	case k >= avx512:
		int8F32AVX512(d, c, scb, n, stream)
	case dt == tensor.F16:
		int8F16AVX2(d, c, scb, n, stream)
	case dt == tensor.BF16:
		int8BF16AVX2(d, c, scb, n, stream)
	default:
		int8F32AVX2(d, c, scb, n, stream)
	}
	return n
}

// int8Values are the numbers that the codes of LLM.int8() stand for.
var int8Values = func() (t [256]float32) {
	for c := range t {
		t[c] = float32(int8(c))
	}
	return t
}()

// streamOut copies src to dst past the caches. Both have the same length, and
// dst any alignment: the ends that do not fill a line are copied as usual.
func streamOut(dst, src []byte) {
	raceWrite(dst)
	head := min(len(dst), toLine(dst))
	copy(dst[:head], src)
	dst, src = dst[head:], src[head:]
	if lines := len(dst) / lineSize; lines > 0 {
		streamCopy(&dst[0], &src[:len(dst)][0], lines)
		dst, src = dst[lines*lineSize:], src[lines*lineSize:]
	}
	copy(dst, src)
}
