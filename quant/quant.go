// Package quant decodes what bitsandbytes quantized, bit for bit as
// bitsandbytes computes it, and converts plain tensors between dtypes.
//
// A Decoder knows the parameters of one tensor (scheme, shape, blocksize) and
// nothing of files. The caller asks it which bytes of which stored part a
// range of elements needs (Span), brings exactly those bytes, and calls Decode.
// So the same decoder serves a mapping, a file read by pread, and memory, and
// touches nothing outside the range.
package quant

import "nibble/tensor"

// MaxParts is the largest number of stored parts that one tensor has: codes,
// absmax, map, nested absmax, nested map.
const MaxParts = 5

// Write says how Decode stores its results. It changes the speed, never the
// bytes.
type Write uint8

const (
	// Auto streams when a call writes at least StreamFrom bytes.
	Auto Write = iota
	// Stream bypasses the caches: right for a large destination that is
	// already populated and is not read at once.
	Stream
	// Cached uses ordinary stores: right for a reused cache-sized buffer, and
	// for fresh pages that this very call populates.
	Cached
)

// StreamFrom is the size of an output, in bytes, from which streaming wins.
const StreamFrom = 1 << 20

// Decoder turns stored bytes into elements of the flattened (C order) tensor.
// A Decoder is immutable and safe for concurrent use.
type Decoder interface {
	// Numel is the number of elements of the decoded tensor.
	Numel() int64
	// DType is what the tensor restores to: what a request for
	// tensor.Stored means.
	DType() tensor.DType
	// Can reports whether the tensor decodes to dt.
	Can(dt tensor.DType) bool
	// Align is the number of elements at whose multiples a range is best cut:
	// such a range never splits a byte or a block.
	Align() int64
	// Parts is the number of stored parts, at most MaxParts.
	Parts() int
	// Span is the byte range of stored part p that elements [lo, hi) need,
	// relative to the start of the part.
	Span(p int, lo, hi int64) (off, n int64)
	// Decode writes elements [lo, hi) as dt in host byte order to dst, which
	// holds exactly that many elements and may have any alignment. parts[p]
	// are the bytes of Span(p, lo, hi), little-endian. It keeps no slice. Decode
	// panics when Can(dt) is false or a length is off: those are errors of the
	// caller, the file's claims were checked when the decoder was made.
	Decode(dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte, w Write)
}
