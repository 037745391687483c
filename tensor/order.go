package tensor

import "encoding/binary"

// HostLittleEndian reports that the host stores words as files do.
const HostLittleEndian = !hostBigEndian

// FromOrder copies src to dst, turning words of the given size from the byte
// order named by bigEndian into that of the host, or back: the operation is
// its own inverse. Both slices have the same length, a multiple of word, and
// may have any alignment; dst may be src itself but not overlap it otherwise.
// Words of one byte are copied as they are.
func FromOrder(dst, src []byte, word int, bigEndian bool) {
	if word == 1 || isHost(bigEndian) {
		copy(dst, src)
		return
	}
	swap(dst, src, word)
}

// isHost reports whether the order named by bigEndian is that of the host.
func isHost(bigEndian bool) bool {
	if HostLittleEndian {
		return !bigEndian
	}
	return bigEndian
}

// swap reverses the bytes of each word.
func swap(dst, src []byte, word int) {
	switch word {
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
