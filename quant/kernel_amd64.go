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
	found := []kernel{generic}
	x := &cpu.X86
	if x.HasAVX2 && x.HasF16C {
		found = append([]kernel{avx2}, found...)
	}
	if x.HasAVX2 && x.HasAVX512F && x.HasAVX512BW {
		found = append([]kernel{avx512}, found...)
	}
	return found
}

// lineSize is the alignment that streaming needs.
const lineSize = 64

// aligned reports whether the first byte of b begins a cache line.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%lineSize == 0 }

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
	case k == avx512 && dt == tensor.F16:
		fourBitF16AVX512(d, c, s, table, blocks, half, stream)
	case k == avx512 && dt == tensor.BF16:
		fourBitBF16AVX512(d, c, s, table, blocks, half, stream)
	case k == avx512:
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
	if k != avx512 || n == 0 {
		return 0
	}
	raceRead(codes[:n])
	nestedScalesAVX512(&dst[:n][0], &codes[0], codeMap, scale, offset, n)
	return n
}

// streamOut copies src to dst past the caches. Both have the same length, and
// dst any alignment: the ends that do not fill a line are copied as usual.
func streamOut(dst, src []byte) {
	raceWrite(dst)
	head := min(len(dst), int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%lineSize))
	copy(dst[:head], src)
	dst, src = dst[head:], src[head:]
	if lines := len(dst) / lineSize; lines > 0 {
		streamCopy(&dst[0], &src[:len(dst)][0], lines)
		dst, src = dst[lines*lineSize:], src[lines*lineSize:]
	}
	copy(dst, src)
}
