package convert_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"nibble/bench/synth"
	"nibble/convert"
	"nibble/store"
	"nibble/tensor"
)

// Memory does not grow with the checkpoint: decoded bytes stay within the
// budget, and all else that is allocated, garbage included, is less than is
// written.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	if err := synth.Write(in, synth.Model{Layers: 2, Weights: 2, Rows: 1024, Cols: 2048, Nested: true, Vocab: 1024}); err != nil {
		t.Fatal(err)
	}
	for i, budget := range []int64{1 << 20, 64 << 10, 1, store.NoCache} {
		st := open(t, in, store.Config{CacheBudget: budget})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := run(t, st, filepath.Join(dir, fmt.Sprint(i)), convert.Options{DType: tensor.F32})
		runtime.ReadMemStats(&after)
		if peak := st.Stats().Peak; peak > max(budget, 0) {
			t.Errorf("budget %d: peak %d bytes", budget, peak)
		}
		if heap := after.TotalAlloc - before.TotalAlloc; r.Bytes < 40<<20 || heap > uint64(r.Bytes)/2 {
			t.Errorf("budget %d: %d bytes allocated to write %d", budget, heap, r.Bytes)
		}
		st.Close()
	}
}

func BenchmarkConvert(b *testing.B) {
	dir := b.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	if err := synth.Write(in, synth.Model{Layers: 4, Weights: 4, Rows: 2048, Cols: 4096, Nested: true}); err != nil {
		b.Fatal(err)
	}
	st := open(b, in, store.Config{})
	out := filepath.Join(dir, "out.safetensors")
	for b.Loop() {
		r := run(b, st, out, convert.Options{Force: true})
		b.SetBytes(r.Bytes) // of tensors written
	}
}
