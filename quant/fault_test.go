//go:build linux && amd64

package quant

import (
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"nibble/internal/testkit"
	"nibble/tensor"
)

// A mapped file that became shorter faults in the middle of a kernel. That must
// be a panic which the decoding goroutine recovers, not the end of the process,
// and the next decode must be sound.
func TestFaultInKernelIsAPanic(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		for _, s := range []sample{
			fourBitSample(t, "nf4", 64, 1<<17, true, plainScales),
			blockwiseSample(t, 64, 1<<16, false, plainScales),
			int8Sample(t, 16, 4096, plainScales),
		} {
			for _, dt := range []tensor.DType{tensor.F16, tensor.F32} {
				n := s.d.Numel()
				want := decodeAll(s.d, dt, s.parts)
				// Half of the codes are there, then the guard page.
				there := testkit.Cliff(t, len(s.parts[0])/2)
				copy(there, s.parts[0])
				parts := append([][]byte{unsafe.Slice(&there[0], len(s.parts[0]))}, s.parts[1:]...)
				for _, w := range []Write{Stream, Cached} {
					dst := make([]byte, len(want))
					if !faults(func() { s.d.Decode(dst, dt, 0, n, parts, w) }) {
						t.Fatalf("%s to %v: no panic", s.name, dt)
					}
					s.d.Decode(dst, dt, 0, n, s.parts, w)
					if string(dst) != string(want) {
						t.Fatalf("%s to %v: the decode after a fault differs", s.name, dt)
					}
				}
			}
		}
	})
}

func faults(call func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		_, fault = recover().(runtime.Error)
	}()
	call()
	return false
}
