package store_test

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"nibble/bench/synth"
	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// synthetic makes a checkpoint of so many layers with two 4 MiB bf16 matrices
// each, nf4 and nested.
func synthetic(t testing.TB, layers int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	err := synth.Write(path, synth.Model{Layers: layers, Weights: 2, Rows: 2048, Cols: 1024, Nested: true, Vocab: 64})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Three passes over a model several times the budget never charge more than
// the budget, with and without prefetch, and give the same bytes each time.
func TestSweepKeepsBudget(t *testing.T) {
	layers := 64 // 512 MiB decoded
	if testing.Short() {
		layers = 6
	}
	path := synthetic(t, layers)
	ctx := context.Background()
	const budget = 20 << 20
	for _, cfg := range []store.Config{
		{CacheBudget: budget}, {CacheBudget: budget, Prefetch: 1, Workers: 2}, {CacheBudget: budget, Policy: "sweep"},
	} {
		st := open(t, path, cfg)
		var first []byte
		for pass := range 3 {
			h := sha256.New()
			seen := 0
			for layer, err := range st.Layers(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				leases, err := layer.Acquire(ctx, tensor.BF16)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range leases {
					h.Write(l.Bytes()[:min(len(l.Bytes()), 64<<10)])
				}
				leases.Release()
				seen++
			}
			if seen != layers+2 {
				t.Fatalf("%d layers, want %d and embeddings and head", seen, layers)
			}
			got := h.Sum(nil)
			if pass == 0 {
				first = got
			} else if string(got) != string(first) {
				t.Fatalf("pass %d gave other bytes than pass 0", pass)
			}
		}
		s := st.Stats()
		if s.Peak > budget {
			t.Errorf("%+v: peak of %d bytes, budget %d", cfg, s.Peak, int64(budget))
		}
		if s.Leased != 0 || s.InFlight != 0 || s.Scratch != 0 {
			t.Errorf("%+v: at rest %d leased, %d in flight, %d scratch", cfg, s.Leased, s.InFlight, s.Scratch)
		}
		want := int64(3 * 2 * layers)
		if !tensor.HostLittleEndian {
			want += int64(3 * (layers + 2)) // norms, embedding and head are no views here
		}
		if s.Hits+s.Misses != want {
			t.Errorf("%+v: %d hits and %d misses, want %d acquisitions", cfg, s.Hits, s.Misses, want)
		}
	}
}

// Opening touches no tensor, a tensor touches its own bytes, and rows touch
// theirs, each to within 1 MiB.
func TestLaziness(t *testing.T) {
	path := synthetic(t, 16) // 17 MiB
	st := open(t, path, store.Config{})
	dropCaches(t, path)
	ctx := context.Background()
	const slack = 1 << 20
	rss := func() int64 { return testkit.Mappings(t, path).Rss }

	if m := testkit.Mappings(t, path); m.Count != 1 {
		t.Errorf("%d mappings of the file, want one", m.Count)
	}
	base := rss()
	if base > slack {
		t.Errorf("after Open: %d bytes resident", base)
	}
	h, err := st.Tensor("model.layers.7.w0.weight")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Info(ctx); err != nil {
		t.Fatal(err)
	}
	if got := rss(); got > base {
		t.Errorf("Info touched the mapping: %d bytes resident", got)
	}
	rows := make([]tensor.BFloat16, 4*1024)
	if err := store.ReadRows(ctx, h, rows, 1000, 1004); err != nil {
		t.Fatal(err)
	}
	if got := rss(); got > base+slack {
		t.Errorf("after four rows: %d bytes resident, want at most %d", got, base+slack)
	}
	l, err := h.Acquire(ctx, tensor.BF16)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	const packed = 2048 * 1024 / 2
	if got := rss(); got < packed || got > base+packed+2*slack {
		t.Errorf("after one tensor of %d bytes: %d bytes resident", packed, got)
	}
}

// Given back pages leave the process: a sweep with source_pages: drop keeps
// the mapping's resident bytes bounded.
func TestDropPages(t *testing.T) {
	path := synthetic(t, 16)
	st := open(t, path, store.Config{SourcePages: "drop", CacheBudget: 16 << 20})
	dropCaches(t, path)
	ctx := context.Background()
	for layer, err := range st.Layers(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		leases, err := layer.Acquire(ctx, tensor.BF16)
		if err != nil {
			t.Fatal(err)
		}
		leases.Release()
		// Of the 33 MiB of the file. A fault maps what the page cache has around
		// it, a huge page at most: at either end of what was decoded last, some
		// may stay mapped, and less at those before.
		const huge = 2 << 20
		if got := testkit.Mappings(t, path).Rss; got > 1<<20+2*huge {
			t.Fatalf("after %s: %d bytes of the mapping resident", layer.Name(), got)
		}
	}
}

// dropCaches takes the file out of the page cache, so that the kernel maps no
// cached neighbours of what is touched.
func dropCaches(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	testkit.DropPageCache(t, f)
}
