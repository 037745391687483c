package quant

import (
	"fmt"
	"testing"

	"nibble/internal/floor"
	"nibble/tensor"
)

// BenchmarkDecode decodes to a reused, aligned destination of the given size,
// as the arena hands out. Bytes are bytes of output.
func BenchmarkDecode(b *testing.B) {
	schemes := []struct {
		name string
		make func(numel int64) sample
	}{
		{"nf4", func(n int64) sample { return fourBitSample(b, "nf4", 64, n, false, plainScales) }},
		{"nf4nested", func(n int64) sample { return fourBitSample(b, "nf4", 64, n, true, plainScales) }},
		{"blockwise8", func(n int64) sample { return blockwiseSample(b, 256, n, false, plainScales) }},
		{"blockwise8short", func(n int64) sample { return blockwiseSample(b, 64, n, false, plainScales) }},
		{"int8", func(n int64) sample { return int8Sample(b, n/4096, 4096, plainScales) }},
	}
	for _, impl := range Kernels() {
		for _, s := range schemes {
			for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
				for _, mib := range []int64{1, 64} {
					b.Run(fmt.Sprintf("impl=%s/scheme=%s/out=%v/size=%dMiB", impl, s.name, dt, mib), func(b *testing.B) {
						use(b, impl)
						numel := mib << 20 / int64(dt.Size())
						benchmarkDecode(b, s.make(numel), dt, numel)
					})
				}
			}
		}
	}
}

// BenchmarkFloor is what BenchmarkDecode is to be compared with, in the same
// run: the same reads and writes without the decoding, and the writes alone.
func BenchmarkFloor(b *testing.B) {
	for _, dt := range []tensor.DType{tensor.F16, tensor.F32} {
		b.Run(fmt.Sprintf("impl=floor/scheme=nf4/out=%v/size=64MiB", dt), func(b *testing.B) {
			dst := floor.Aligned(64 << 20)
			blocks := len(dst) / dt.Size() / floor.Block
			codes, scales := floor.Aligned(blocks*floor.Block/2), floor.Aligned(blocks*4)
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				floor.Decode(dst, codes, scales)
			}
		})
	}
	b.Run("impl=memset/scheme=none/out=any/size=64MiB", func(b *testing.B) {
		dst := floor.Aligned(64 << 20)
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			floor.Set(dst)
		}
	})
}

// benchmarkDecode stores as the store room would: streaming to what is large.
func benchmarkDecode(b *testing.B, s sample, dt tensor.DType, numel int64) {
	dst := floor.Aligned(int(numel) * dt.Size())
	parts := make([][]byte, len(s.parts))
	for p := range parts {
		off, n := s.d.Span(p, 0, numel)
		parts[p] = s.parts[p][off : off+n]
	}
	w := Cached
	if len(dst) > StreamFrom {
		w = Stream
	}
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		s.d.Decode(dst, dt, 0, numel, parts, w)
	}
	b.ReportMetric(float64(numel)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelement/s")
}
