//go:build !amd64 || purego

package quant

import "nibble/tensor"

// detect finds nothing but plain Go here, so nothing below is reached.
func detect() []kernel { return []kernel{generic} }

func toLine([]byte) int { return 0 }

func (kernel) fourBit([]byte, tensor.DType, []byte, []float32, *[16]float32, int, bool) {}

func (kernel) nested([]float32, []byte, *[256]float32, float32, float32) int { return 0 }

func (kernel) blockwise([]byte, tensor.DType, []byte, []float32, int, *codeMap, bool) bool {
	return false
}

func (kernel) int8([]byte, tensor.DType, []byte, float32, bool) int { return 0 }

func streamOut(dst, src []byte) { copy(dst, src) }

func storeFence() {}
