// Package bench measures the store as its users meet it. Names read as table
// rows; sizes are bytes of output. Records are kept in records/.
package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"nibble/bench/synth"
	"nibble/store"
	"nibble/tensor"
)

// model writes a checkpoint for the duration of a benchmark.
func model(b *testing.B, m synth.Model) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "model.safetensors")
	if err := synth.Write(path, m); err != nil {
		b.Fatal(err)
	}
	return path
}

func open(b *testing.B, path string, cfg store.Config) *store.Store {
	b.Helper()
	st, err := store.Open(context.Background(), path, store.WithConfig(cfg))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return st
}

func find(b *testing.B, st *store.Store, name string) *store.Tensor {
	b.Helper()
	t, err := st.Tensor(name)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// One goroutine acquires a tensor that is cached, and releases it.
func BenchmarkAcquireHit(b *testing.B) {
	st := open(b, model(b, synth.Model{Layers: 1, Weights: 1, Rows: 256, Cols: 256}), store.Config{})
	t := find(b, st, "model.layers.0.w0.weight")
	ctx := context.Background()
	warm, err := t.Acquire(ctx, tensor.BF16)
	if err != nil {
		b.Fatal(err)
	}
	warm.Release()
	b.ReportAllocs()
	for b.Loop() {
		l, err := t.Acquire(ctx, tensor.BF16)
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}

// A tensor is decoded each time, into memory that the arena reuses.
func BenchmarkAcquireMiss(b *testing.B) {
	for _, size := range []int64{64 << 10, 1 << 20, 16 << 20, 128 << 20} {
		for _, dt := range []tensor.DType{tensor.BF16, tensor.F16, tensor.F32} {
			b.Run(fmt.Sprintf("scheme=nf4/out=%s/size=%d", dt, size), func(b *testing.B) {
				rows := size / int64(dt.Size()) / 1024
				st := open(b, model(b, synth.Model{Layers: 1, Weights: 2, Rows: max(rows, 1), Cols: 1024}),
					store.Config{CacheBudget: size})
				ts := []*store.Tensor{find(b, st, "model.layers.0.w0.weight"), find(b, st, "model.layers.0.w1.weight")}
				ctx := context.Background()
				b.SetBytes(size)
				i := 0
				for b.Loop() {
					l, err := ts[i%2].Acquire(ctx, dt)
					if err != nil {
						b.Fatal(err)
					}
					l.Release()
					i++
				}
			})
		}
	}
}

// A layer of seven matrices is decoded from one queue.
func BenchmarkAcquireMany(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("scheme=nf4/out=bf16/tensors=7/workers=%d", workers), func(b *testing.B) {
			const size = 7 * 8 << 20 // room for one of two layers: no tensor is found cached
			st := open(b, model(b, synth.Model{Layers: 2, Weights: 7, Rows: 4096, Cols: 1024}),
				store.Config{CacheBudget: size, Workers: workers})
			ctx := context.Background()
			b.SetBytes(size)
			for b.Loop() {
				for layer, err := range st.Layers(ctx) {
					if err != nil {
						b.Fatal(err)
					}
					leases, err := layer.Acquire(ctx, tensor.BF16)
					if err != nil {
						b.Fatal(err)
					}
					leases.Release()
				}
			}
			b.SetBytes(2 * size)
		})
	}
}

// Rows are decoded to a buffer of the caller's.
func BenchmarkReadRows(b *testing.B) {
	st := open(b, model(b, synth.Model{Layers: 1, Weights: 1, Rows: 4096, Cols: 4096}), store.Config{})
	t := find(b, st, "model.layers.0.w0.weight")
	ctx := context.Background()
	for _, rows := range []int64{1, 16, 256} {
		b.Run(fmt.Sprintf("scheme=nf4/out=bf16/rows=%d", rows), func(b *testing.B) {
			dst := make([]tensor.BFloat16, rows*4096)
			b.SetBytes(int64(len(dst) * 2))
			b.ReportAllocs()
			r := int64(0)
			for b.Loop() {
				if err := store.ReadRows(ctx, t, dst, r, r+rows); err != nil {
					b.Fatal(err)
				}
				r = (r + rows) % (4096 - rows)
			}
		})
	}
}

// A tensor goes by in tiles that stay in the cache.
func BenchmarkTiles(b *testing.B) {
	st := open(b, model(b, synth.Model{Layers: 1, Weights: 1, Rows: 8192, Cols: 4096}), store.Config{})
	t := find(b, st, "model.layers.0.w0.weight")
	for _, dt := range []tensor.DType{tensor.BF16, tensor.F16, tensor.F32} {
		b.Run(fmt.Sprintf("scheme=nf4/out=%s", dt), func(b *testing.B) {
			b.SetBytes(8192 * 4096 * int64(dt.Size()))
			for b.Loop() {
				for _, err := range t.Tiles(context.Background(), dt, 1<<20) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
