package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"nibble/bench/synth"
	"nibble/store"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// A checkpoint of 100 shards and 90,000 tensors is opened.
func BenchmarkOpen(b *testing.B) {
	b.Run("shards=100/tensors=90000", func(b *testing.B) {
		dir := b.TempDir()
		if err := synth.Shards(dir, 100, 900); err != nil {
			b.Fatal(err)
		}
		benchmarkOpen(b, dir, 90_000)
	})
	b.Run("shards=1/tensors=100000", func(b *testing.B) {
		benchmarkOpen(b, sparse(b, 100_000, tensor.Shape{32, 32}), 100_000)
	})
	b.Run("shards=1/tensors=256/size=1GiB", func(b *testing.B) {
		benchmarkOpen(b, sparse(b, 256, tensor.Shape{2048, 1024}), 256)
	})
}

// benchmarkOpen also tells by how much one open store makes the process larger.
func benchmarkOpen(b *testing.B, path string, tensors int) {
	open := func() *store.Store {
		st, err := store.Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		if st.Len() != tensors {
			b.Fatalf("%d tensors; want %d", st.Len(), tensors)
		}
		return st
	}
	open().Close()
	b.ReportAllocs()
	for b.Loop() {
		open().Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tensors), "ns/tensor")
	debug.FreeOSMemory()
	before := resident()
	st := open()
	b.ReportMetric(float64(resident()-before)/(1<<20), "MiB-resident") // with what Open has left to the collector
	st.Close()
}

// sparse writes a checkpoint of bf16 tensors whose bytes take no place on the
// disk.
func sparse(b *testing.B, tensors int, shape tensor.Shape) string {
	b.Helper()
	ts := make([]safetensors.Tensor, tensors)
	for i := range ts {
		ts[i] = safetensors.Tensor{Name: fmt.Sprintf("model.layers.%d.weight", i), DType: tensor.BF16, Shape: shape}
	}
	layout, err := safetensors.Encode(ts, nil)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, layout.Header, 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.Truncate(path, layout.Size); err != nil {
		b.Fatal(err)
	}
	return path
}

// resident is the memory of the process that is in RAM, in bytes, of files as
// well; 0 where the system does not tell.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
