package quant

import (
	"testing"

	"nibble/tensor"
)

// A decode must not touch the heap: rows are read one by one.
func TestDecodeAllocatesNothing(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		for _, s := range samples(t, 1<<12) {
			for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
				for _, w := range []Write{Stream, Cached} {
					dst := make([]byte, int(s.d.Numel())*dt.Size())
					if n := testing.AllocsPerRun(5, func() { s.d.Decode(dst, dt, 0, s.d.Numel(), s.parts, w) }); n != 0 {
						t.Errorf("%s to %v: %v allocations", s.name, dt, n)
					}
				}
			}
		}
	})
}
