package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Narrow writes each value of src as an element of type to, F16, BF16 or F32,
// in host byte order to dst, which holds exactly len(src) elements and may
// have any alignment. Rounding is to nearest, ties to even.
func Narrow(dst []byte, to DType, src []float32) {
	if len(dst) != len(src)*to.Size() {
		panic(fmt.Sprintf("tensor: %d bytes for %d elements of %v", len(dst), len(src), to))
	}
	switch to {
	case F16:
		for i, f := range src {
			// f16Bits, spelled out: it is beyond what the compiler inlines.
			u := math.Float32bits(f)
			a := u &^ signBit
			h := f16Normal(a)
			if !isNormal(a) {
				h = f16Rare(a)
			}
			binary.NativeEndian.PutUint16(dst[2*i:2*i+2], uint16(u>>16&0x8000)|h)
		}
	case BF16:
		for i, f := range src {
			binary.NativeEndian.PutUint16(dst[2*i:2*i+2], bf16Bits(math.Float32bits(f)))
		}
	case F32:
		for i, f := range src {
			binary.NativeEndian.PutUint32(dst[4*i:4*i+4], math.Float32bits(f))
		}
	default:
		panic(fmt.Sprintf("tensor: cannot narrow to %v", to))
	}
}

// Widen reads little-endian elements of type from, for which from.IsFloat holds,
// and writes their values to dst. src holds exactly len(dst) elements and may
// have any alignment. Every type but F64 widens exactly; F64 is rounded to
// nearest, ties to even.
func Widen(dst []float32, src []byte, from DType) {
	if len(src) != len(dst)*from.Size() {
		panic(fmt.Sprintf("tensor: %d bytes for %d elements of %v", len(src), len(dst), from))
	}
	switch from {
	case F16:
		for i := range dst {
			dst[i] = widenF16(binary.LittleEndian.Uint16(src[2*i : 2*i+2]))
		}
	case BF16:
		for i := range dst {
			dst[i] = widenBF16(binary.LittleEndian.Uint16(src[2*i : 2*i+2]))
		}
	case F32:
		if HostLittleEndian {
			copy(float32Bytes(dst), src)
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i : 4*i+4]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i : 8*i+8])))
		}
	default:
		table := float8[from]
		if table == nil {
			panic(fmt.Sprintf("tensor: cannot widen from %v", from))
		}
		for i, c := range src {
			dst[i] = table[c]
		}
	}
}

// Float32s is src, the little-endian bytes of float32 values, as these values,
// or nil where they cannot be read in place (see InPlace). The result aliases
// src: it is valid, and may be written, as long and as far as src. Bytes behind
// the last whole value are left out.
func Float32s(src []byte) []float32 {
	if !InPlace(src, 4) {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(src))), len(src)/4)
}

// float32Bytes views the memory of f as bytes.
func float32Bytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// Convert writes the elements of src, little-endian and of type from, as
// elements of type to in host byte order. Equal types are copied bit for bit.
// Otherwise from.IsFloat must hold and to be F16, BF16 or F32;
// values pass through float32, so F64 is rounded twice on its way to 16 bits,
// as torch does. dst and src hold equally many elements, have any alignment
// and do not overlap.
func Convert(dst []byte, to DType, src []byte, from DType) {
	if to == from {
		LittleEndian(dst, src, from.WordSize())
		return
	}
	const chunk = 512 // elements: 2 KiB of float32, which stays in the first-level cache
	var buf [chunk]float32
	for len(src) > 0 {
		n := min(chunk, len(src)/from.Size())
		Widen(buf[:n], src[:n*from.Size()], from)
		Narrow(dst[:n*to.Size()], to, buf[:n])
		src, dst = src[n*from.Size():], dst[n*to.Size():]
	}
}
