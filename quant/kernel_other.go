//go:build !amd64 || purego

package quant

import "nibble/tensor"

// detect finds nothing but plain Go here, so nothing below is reached.
func detect() []kernel { return []kernel{generic} }

func aligned([]byte) bool { return false }

func (kernel) fourBit([]byte, tensor.DType, []byte, []float32, *[16]float32, int, bool) {}

func (kernel) nested([]float32, []byte, *[256]float32, float32, float32) int { return 0 }

func streamOut(dst, src []byte) { copy(dst, src) }

func storeFence() {}
