package quant

import (
	"encoding/binary"
	"math"

	"nibble/tensor"
)

// Codes of eight bits with one scale have only 256 possible results. Elements
// are looked up among them when they are many enough to pay for the table,
// and computed otherwise, chunk by chunk.
const (
	longRun = 1024
	chunk   = 64 // elements in a float32 buffer on the stack, on their way to dt
)

// lookUp256 decodes codes to results, rounded to dt.
func lookUp256(dst []byte, dt tensor.DType, codes []byte, results *[256]float32) {
	if dt == tensor.F32 {
		for i, c := range codes {
			binary.NativeEndian.PutUint32(dst[4*i:4*i+4], math.Float32bits(results[c]))
		}
		return
	}
	var words [256]uint16
	for c, v := range results {
		if dt == tensor.F16 {
			words[c] = uint16(tensor.ToFloat16(v))
		} else {
			words[c] = uint16(tensor.ToBFloat16(v))
		}
	}
	for i, c := range codes {
		binary.NativeEndian.PutUint16(dst[2*i:2*i+2], words[c])
	}
}
