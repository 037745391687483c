package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"nibble/bench/synth"
	"nibble/store"
	"nibble/tensor"
)

// The file is cut while several workers decode from it, by every way of
// reading and both backends: each read ends in ErrTruncated or in the right
// bytes, never in bytes of nothing, and the process lives.
func TestTruncationDuringReads(t *testing.T) {
	needFaults(t)
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	m := synth.Model{Layers: 4, Weights: 2, Rows: 512, Cols: 1024, Vocab: 512}
	if err := synth.Write(path, m); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	whole := open(t, path, store.Config{})
	for h := range whole.Tensors() {
		l, err := h.Acquire(ctx, tensor.BF16)
		if err != nil {
			t.Fatal(err)
		}
		want[h.Name()] = sum(l.Bytes(), tensor.BF16, false)
		l.Release()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		for _, backend := range []string{"mmap", "pread"} {
			victim := filepath.Join(dir, backend+".safetensors")
			if err := os.WriteFile(victim, data, 0o644); err != nil {
				t.Fatal(err)
			}
			st, err := store.Open(ctx, victim, store.WithConfig(store.Config{Backend: backend, Workers: 3, CacheBudget: 1 << 20}))
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for worker := range 4 {
				wg.Go(func() { readForever(t, st, want, worker) })
			}
			time.Sleep(time.Duration(round) * 3 * time.Millisecond)
			if err := os.Truncate(victim, int64(len(data))/4+int64(round)*12345); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// readForever reads all tensors until the file is cut, each worker in another
// way.
func readForever(t *testing.T, st *store.Store, want map[string]string, way int) {
	ctx := context.Background()
	for {
		broken := 0
		for h := range st.Tensors() {
			got, err := readBy(ctx, h, way)
			switch {
			case errors.Is(err, store.ErrTruncated):
				broken++
			case err != nil:
				t.Errorf("%s: %v", h.Name(), err)
				return
			case got != want[h.Name()]:
				t.Errorf("%s was read as %s, want %s or ErrTruncated", h.Name(), got, want[h.Name()])
				return
			}
		}
		if broken > 0 {
			return
		}
	}
}

func readBy(ctx context.Context, h *store.Tensor, way int) (string, error) {
	info, err := h.Info(ctx)
	if err != nil {
		return "", err
	}
	buf := make([]byte, numel(info.Shape)*2)
	switch way {
	case 0:
		l, err := h.Acquire(ctx, tensor.BF16)
		if err != nil {
			return "", err
		}
		defer l.Release()
		err = l.Do(func(b []byte) error { copy(buf, b); return nil })
		if err != nil {
			return "", err
		}
	case 1:
		if err := h.ReadRows(ctx, buf, tensor.BF16, 0, info.Shape[0]); err != nil {
			return "", err
		}
	case 2:
		n := 0
		for tile, err := range h.Tiles(ctx, tensor.BF16, 1<<16) {
			if err != nil {
				return "", err
			}
			n += copy(buf[n:], tile.Data)
		}
	case 3:
		raw, err := h.Raw(ctx)
		if err != nil {
			return "", err
		}
		defer raw.Release()
		if err := raw.Do(func(b []byte) error { _ = sum(b, tensor.U8, false); return nil }); err != nil {
			return "", err
		}
		if err := h.Read(ctx, buf, tensor.BF16, 0, int64(len(buf)/2)); err != nil {
			return "", err
		}
	}
	return sum(buf, tensor.BF16, false), nil
}
