package tensor

import (
	"encoding/binary"
	"unsafe"
)

// HostLittleEndian reports that the host stores words as files do.
const HostLittleEndian = !hostBigEndian

// LittleEndian copies src to dst, turning words of the given size from
// little-endian byte order into that of the host, or back: the operation is its
// own inverse. The rules of Swap hold; where the orders agree, a slice onto
// itself costs nothing.
func LittleEndian(dst, src []byte, word int) {
	if HostLittleEndian {
		copy(dst, src)
		return
	}
	Swap(dst, src, word)
}

// InPlace reports whether the host can read the little-endian words of the given
// size in src where they are: in its own order, and aligned.
func InPlace(src []byte, word int) bool {
	if word == 1 || len(src) == 0 {
		return true
	}
	return HostLittleEndian && uintptr(unsafe.Pointer(unsafe.SliceData(src)))%uintptr(word) == 0
}

// Swap copies src to dst and reverses the bytes of each word, of 1, 2, 4 or 8.
// Both slices have the same length, a multiple of word, and may have any
// alignment; dst may be src itself but not overlap it otherwise.
func Swap(dst, src []byte, word int) {
	switch word {
	case 1:
		copy(dst, src)
	case 2:
		for i := 0; i+2 <= len(src); i += 2 {
			binary.BigEndian.PutUint16(dst[i:], binary.LittleEndian.Uint16(src[i:]))
		}
	case 4:
		for i := 0; i+4 <= len(src); i += 4 {
			binary.BigEndian.PutUint32(dst[i:], binary.LittleEndian.Uint32(src[i:]))
		}
	case 8:
		for i := 0; i+8 <= len(src); i += 8 {
			binary.BigEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(src[i:]))
		}
	default:
		panic("tensor: no such word size")
	}
}
