// Package floor measures what memory allows: the loops of a four-bit decode
// without the decoding. A decoder's speed means little by itself, because it
// is bounded by the machine's memory; as a ratio to these, taken in the same
// run, it can be compared.
package floor

import (
	"encoding/binary"
	"fmt"
)

// LineSize is the alignment, and the unit in bytes, of destinations.
const LineSize = 64

// Block is the number of elements, two a byte, with one float32 scale.
const Block = 64

// Set fills dst, which begins at a cache line and consists of whole ones, past
// the caches where the machine can, and with ordinary stores elsewhere. This
// is the ceiling of any decoder.
func Set(dst []byte) {
	check(dst, 1)
	if len(dst) == 0 {
		return
	}
	if streams {
		set(&dst[0], len(dst)/LineSize)
		return
	}
	for i := range dst {
		dst[i] = 3
	}
}

// Decode reads the codes and the scales of len(scales)/4 blocks and fills dst,
// like Set, with as many bytes for each, but computes nothing: the floor of
// any four-bit decoder's time. dst is a whole number of cache lines a block.
func Decode(dst, codes, scales []byte) {
	blocks := len(scales) / 4
	check(dst, blocks)
	if len(codes) != blocks*Block/2 {
		panic(fmt.Sprintf("floor: %d bytes of codes for %d blocks", len(codes), blocks))
	}
	if len(dst) == 0 {
		return
	}
	if streams {
		decode(&dst[0], &codes[0], &scales[0], blocks, len(dst)/blocks/LineSize)
		return
	}
	per := len(dst) / blocks
	for b := range blocks {
		v := uint64(binary.NativeEndian.Uint32(scales[4*b:]))
		for i := 0; i < Block/2; i += 8 {
			v ^= binary.NativeEndian.Uint64(codes[b*Block/2+i:])
		}
		for i := b * per; i < (b+1)*per; i += 8 {
			binary.NativeEndian.PutUint64(dst[i:], v)
		}
	}
}

// check panics unless dst is aligned and has whole lines for each block.
func check(dst []byte, blocks int) {
	if !aligned(dst) || blocks == 0 && len(dst) > 0 || blocks > 0 && len(dst)%(blocks*LineSize) != 0 {
		panic(fmt.Sprintf("floor: destination of %d bytes for %d blocks is not aligned, or not of whole cache lines", len(dst), blocks))
	}
}
