package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"nibble/bench/synth"

	"nibble/store"
	"nibble/tensor"
)

// With prefetch, the next layer is decoded while the caller works on this one:
// its tensors are hits. Leaving the loop leaves nothing behind.
func TestPrefetch(t *testing.T) {
	path := synthetic(t, 6)
	ctx := context.Background()
	st := open(t, path, store.Config{CacheBudget: 64 << 20, Prefetch: 2})
	misses := 0
	for layer, err := range st.Layers(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if layer.Index() == 0 {
			const matrices, norm = 2 * 2048 * 1024 * 2, 1024 * 2
			total, charged, err := layer.Bytes(ctx, tensor.BF16)
			views := int64(norm)
			if !tensor.HostLittleEndian {
				views = 0
			}
			if err != nil || total != matrices+norm || charged != total-views {
				t.Errorf("layer 0 has %d bytes and is charged for %d: %v", total, charged, err)
			}
		}
		leases, n, err := layer.AcquireCount(ctx, tensor.BF16)
		if err != nil {
			t.Fatal(err)
		}
		if n.Hits+n.Misses+n.Views != layer.Len() {
			t.Errorf("%s: %+v of %d tensors", layer.Name(), n, layer.Len())
		}
		misses += n.Misses
		leases.Release()
	}
	// Everything behind the embeddings was asked for ahead, and those are views
	// where the host reads what the file says.
	first, want := 0, int64(12)
	if !tensor.HostLittleEndian {
		first, want = 1, 12+6+1 // norms and head are no views either
	}
	if misses != first {
		t.Errorf("%d tensors were not there when they were needed", misses)
	}
	if s := st.Stats(); s.Prefetched != want || s.Peak > 64<<20 {
		t.Errorf("prefetched %d outputs with a peak of %d, want %d within the budget", s.Prefetched, s.Peak, want)
	}

	for layer := range st.Layers(ctx) {
		if layer.Index() == 2 {
			break // goleak and Close see what is left behind
		}
		leases, err := layer.Acquire(ctx, tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		leases.Release()
	}
	if s := st.Stats(); s.InFlight != 0 {
		t.Errorf("%d bytes in flight after the loop was left", s.InFlight)
	}
}

// Prefetch never takes what the budget does not have.
func TestPrefetchWithoutRoom(t *testing.T) {
	ctx := context.Background()
	const layer = 8 << 20
	st := open(t, synthetic(t, 4), store.Config{CacheBudget: layer + layer/8, Prefetch: 3})
	for l, err := range st.Layers(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		leases, err := l.Acquire(ctx, tensor.BF16)
		if err != nil {
			t.Fatal(err)
		}
		leases.Release()
	}
	if s := st.Stats(); s.Peak > s.Budget {
		t.Errorf("peak %d, budget %d", s.Peak, s.Budget)
	}
}

// A consumer that takes as long as the decode, such as a device, hides behind
// it: the sweep takes little more than one of the two. Memory is touched for
// the first time before the clock starts.
func BenchmarkPrefetchOverlap(b *testing.B) {
	path := filepath.Join(b.TempDir(), "model.safetensors")
	const layers = 12
	if err := synth.Write(path, synth.Model{Layers: layers, Weights: 8, Rows: 4096, Cols: 1024}); err != nil {
		b.Fatal(err) // 64 MiB a layer
	}
	ctx := context.Background()
	plain := open(b, path, store.Config{CacheBudget: 256 << 20})
	ahead := open(b, path, store.Config{CacheBudget: 256 << 20, Prefetch: 1})
	sweep := func(st *store.Store, work time.Duration) (whole, consumed time.Duration) {
		start := time.Now()
		for l, err := range st.Layers(ctx) {
			if err != nil {
				b.Fatal(err)
			}
			leases, err := l.Acquire(ctx, tensor.BF16)
			if err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			if work > 0 {
				time.Sleep(work) // and as long as the timer takes to come
			}
			consumed += time.Since(begin)
			leases.Release()
		}
		return time.Since(start), consumed
	}
	for range 3 {
		sweep(plain, 0)
		sweep(ahead, time.Millisecond)
	}
	var decode, both, larger time.Duration
	for b.Loop() {
		d, _ := sweep(plain, 0)
		whole, consumed := sweep(ahead, d/layers)
		decode += d
		both += whole
		larger += max(d, consumed)
	}
	b.ReportMetric(float64(decode.Microseconds())/float64(b.N)/layers, "µs/layer")
	b.ReportMetric(float64(both)/float64(larger), "x-of-larger")
}

// Stores that share a cache share its budget; closing one leaves the other's
// entries alone.
func TestSharedCache(t *testing.T) {
	ctx := context.Background()
	shared, err := store.NewCache(store.Config{CacheBudget: 16 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	a := open(t, modelFile, store.Config{}, store.WithCache(shared))
	b, err := store.Open(ctx, modelFile, store.WithCache(shared))
	if err != nil {
		t.Fatal(err)
	}
	_, qa := plainAndQuantized(t, a)
	_, qb := plainAndQuantized(t, b)
	for _, h := range []*store.Tensor{qa, qb} {
		if err := release(h.Acquire(ctx, tensor.F32)); err != nil {
			t.Fatal(err)
		}
	}
	if s := a.Stats(); s.Misses != 2 || s.Entries != 2 || s.Budget != 16<<20 {
		t.Errorf("two stores: %+v", s)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := release(qa.Acquire(ctx, tensor.F32)); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Hits != 1 || s.Entries != 1 {
		t.Errorf("after one of them was closed: %+v", s)
	}
}

// Packed gives what a kernel of the caller's own needs to come to the same
// values.
func TestPacked(t *testing.T) {
	ctx := context.Background()
	for _, file := range []string{"st4/grid_nf4_nested.safetensors", "st4/grid_fp4_plain.safetensors", "bw8/nested_dict.pt", "int8/linear8bitlt.safetensors"} {
		st := open(t, goldenDir+"/"+file, store.Config{})
		for h := range st.Tensors() {
			p, err := h.Packed(ctx)
			if err != nil {
				if info, _ := h.Info(ctx); info.Scheme != store.SchemePlain {
					t.Error(err)
				}
				continue
			}
			l, err := h.Acquire(ctx, tensor.F32)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range l.Float32s() {
				if got := packedValue(p, i); got != want {
					t.Fatalf("%s %s[%d] = %v, want %v", file, h.Name(), i, got, want)
				}
			}
			l.Release()
			p.Codes.Release()
		}
	}
}

// packedValue decodes one element the slow way.
func packedValue(p *store.Packed, i int) float32 {
	codes, scale := p.Codes.Bytes(), p.Scales[int64(i)/p.BlockSize]
	switch p.Scheme {
	case store.SchemeInt8:
		const inv127 float32 = 7.874015718698502e-3
		return float32(float32(int8(codes[i]))*scale) * inv127
	case store.SchemeBlockwise8:
		return p.Table[codes[i]] * scale
	}
	code := codes[i/2]
	if i%2 == 0 {
		code >>= 4
	}
	return p.Table[code&15] * scale
}
