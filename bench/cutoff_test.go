package bench

import (
	"context"
	"fmt"
	"testing"

	"nibble/bench/synth"
	"nibble/cache"
	"nibble/concurrency"
	"nibble/internal/floor"
	"nibble/quant"
	"nibble/store"
	"nibble/tensor"
)

// The benchmarks here are where the constants of store/batch.go come from.

// decoder makes an nf4 decoder of n elements and what it reads.
func decoder(b *testing.B, n int64) (quant.Decoder, [][]byte) {
	b.Helper()
	vector := func(n int64) *quant.Stored {
		return &quant.Stored{DType: tensor.F32, Shape: tensor.Shape{n}, Bytes: 4 * n}
	}
	d, err := quant.NewFourBit(
		&quant.State{QuantType: "nf4", BlockSize: 64, DType: tensor.BF16, Shape: tensor.Shape{n}},
		quant.FourBitParts{Packed: quant.Stored{DType: tensor.U8, Bytes: n / 2}, Absmax: vector(n / 64), QuantMap: vector(16)})
	if err != nil {
		b.Fatal(err)
	}
	return d, [][]byte{floor.Aligned(int(n / 2)), make([]byte, n/64*4)}
}

// One tensor is cut into ranges of different sizes: rangeBytes. Smaller ones
// cost more calls, larger ones leave a worker idle at the end.
func BenchmarkRange(b *testing.B) {
	for _, size := range []int64{8 << 20, 64 << 20} {
		d, parts := decoder(b, size/2)
		dst := floor.Aligned(int(size))
		for _, piece := range []int64{64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20} {
			for _, workers := range []int{1, 2} {
				b.Run(fmt.Sprintf("scheme=nf4/out=bf16/size=%dMiB/range=%dKiB/workers=%d", size>>20, piece>>10, workers), func(b *testing.B) {
					pool := concurrency.NewPool(workers)
					b.SetBytes(size)
					for b.Loop() {
						decodeRanges(b, pool, d, dst, parts, concurrency.Split(0, size/2, piece/2), false)
					}
				})
			}
		}
	}
}

// Fresh memory is cut into ranges of different sizes: freshBytes. Two that share
// a huge page have it cleared twice.
func BenchmarkFresh(b *testing.B) {
	const size = 64 << 20
	d, parts := decoder(b, size/2)
	for _, piece := range []int64{512 << 10, 1 << 20, 2 << 20, 4 << 20} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("scheme=nf4/out=bf16/size=64MiB/range=%dKiB/workers=%d", piece>>10, workers), func(b *testing.B) {
				pool := concurrency.NewPool(workers)
				home := cache.New[int](cache.Options{})
				defer home.Close()
				b.SetBytes(size)
				for b.Loop() {
					dst, err := home.Buffer(context.Background(), size) // above the budget: unmapped by Free
					if err != nil {
						b.Fatal(err)
					}
					if !dst.Fresh() {
						b.Fatal("memory that was used before")
					}
					decodeRanges(b, pool, d, dst.Bytes(), parts, concurrency.Split(0, size/2, piece/2), true)
					dst.Free()
				}
			})
		}
	}
}

// decodeRanges decodes to populated memory past the caches, or to fresh memory,
// which it populates, through them: as the store does.
func decodeRanges(b *testing.B, pool *concurrency.Pool, d quant.Decoder, dst []byte, parts [][]byte, ranges concurrency.Ranges, fresh bool) {
	w := quant.Stream
	if fresh {
		w = quant.Cached
	}
	err := pool.Run(context.Background(), ranges.Len(), 0, func(_, i int) error {
		lo, hi := ranges.At(i)
		var windows [2][]byte
		for p := range windows {
			off, n := d.Span(p, lo, hi)
			windows[p] = parts[p][off : off+n]
		}
		if fresh {
			cache.Populate(dst[2*lo : 2*hi])
		}
		d.Decode(dst[2*lo:2*hi], tensor.BF16, lo, hi, windows[:], w)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// A tensor is decoded by one worker and by two, by itself: soloBytes is a size
// from which two are never slower.
func BenchmarkShare(b *testing.B) {
	for _, kib := range []int64{256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10} {
		size := kib << 10
		d, parts := decoder(b, size/2)
		dst := floor.Aligned(int(size))
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("scheme=nf4/out=bf16/size=%dKiB/workers=%d", kib, workers), func(b *testing.B) {
				pool := concurrency.NewPool(workers)
				ranges := concurrency.Split(0, size/2, min(1<<20, size/2)/2)
				b.SetBytes(size)
				for b.Loop() {
					decodeRanges(b, pool, d, dst, parts, ranges, false)
				}
			})
		}
	}
}

// The same for the store as it is: with two workers it is never slower than
// with one.
func BenchmarkAcquireShare(b *testing.B) {
	for _, mib := range []int64{1, 2, 4, 8, 16, 64} {
		size := mib << 20
		path := model(b, synth.Model{Layers: 2, Weights: 1, Rows: size / 2 / 1024, Cols: 1024})
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("scheme=nf4/out=bf16/size=%dMiB/workers=%d", mib, workers), func(b *testing.B) {
				st := open(b, path, store.Config{CacheBudget: size, Workers: workers})
				ts := []*store.Tensor{find(b, st, "model.layers.0.w0.weight"), find(b, st, "model.layers.1.w0.weight")}
				b.SetBytes(size)
				for i := 0; b.Loop(); i++ {
					l, err := ts[i%2].Acquire(context.Background(), tensor.BF16)
					if err != nil {
						b.Fatal(err)
					}
					l.Release()
				}
			})
		}
	}
}
