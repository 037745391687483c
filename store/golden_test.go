package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"nibble/store"
	"nibble/tensor"
)

// targets are the dtypes that the manifest has hashes for.
var targets = []struct {
	key string
	dt  tensor.DType
}{{"f32", tensor.F32}, {"f16", tensor.F16}, {"bf16", tensor.BF16}, {"restored", tensor.Stored}}

func safetensorsCases() []goldenCase {
	return slices.DeleteFunc(slices.Clone(readManifest().Cases), func(c goldenCase) bool { return c.Container == "pt" })
}

func open(t testing.TB, path string, cfg store.Config, opts ...store.Option) *store.Store {
	t.Helper()
	st, err := store.Open(context.Background(), path, append(opts, store.WithConfig(cfg))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// Every tensor decodes to the bits that the reference implementation computes,
// for every number of workers and either backend.
func TestGolden(t *testing.T) {
	for _, cfg := range []store.Config{
		{Workers: 1}, {Workers: 2}, {Workers: 7}, {Backend: "pread"}, {CopyPlain: true, CacheBudget: store.NoCache},
	} {
		for _, c := range safetensorsCases() {
			t.Run(fmt.Sprintf("workers=%d/backend=%s/%s", cfg.Workers, cfg.Backend, c.Path), func(t *testing.T) {
				st := open(t, filepath.Join(goldenDir, c.Path), cfg)
				if st.Len() != len(c.Tensors) {
					t.Errorf("%d tensors, want %d", st.Len(), len(c.Tensors))
				}
				for _, want := range c.Tensors {
					checkTensor(t, st, want.Name, want, c.NaNCanonical)
				}
			})
		}
	}
}

func checkTensor(t *testing.T, st *store.Store, name string, want goldenTensor, canonical bool) {
	t.Helper()
	ctx := context.Background()
	h, err := st.Tensor(name)
	if err != nil {
		t.Error(err)
		return
	}
	info, err := h.Info(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	if !slices.Equal(info.Shape, want.Shape) || string(info.Scheme) != want.Kind || info.Nested != want.Nested || info.DType.Torch() != want.RestoredDType {
		t.Errorf("%s: shape %v scheme %s nested %v dtype %s, want %v %s %v %s",
			name, info.Shape, info.Scheme, info.Nested, info.DType.Torch(), want.Shape, want.Kind, want.Nested, want.RestoredDType)
	}
	if want.BlockSize != info.BlockSize {
		t.Errorf("%s: blocksize %d, want %d", name, info.BlockSize, want.BlockSize)
	}
	for _, target := range targets {
		sha, ok := want.SHA256[target.key]
		if !ok {
			if _, err := h.Acquire(ctx, target.dt); !errors.Is(err, store.ErrUnsupported) {
				t.Errorf("%s as %s: error %v, want ErrUnsupported", name, target.dt, err)
			}
			continue
		}
		l, err := h.Acquire(ctx, target.dt)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sum(l.Bytes(), l.DType(), canonical); got != sha {
			t.Errorf("%s as %s: sha256 %s, want %s", name, target.key, got, sha)
		}
		l.Release()
	}
}

// Reading a tensor in odd pieces, which start in the middle of blocks and
// bytes, gives the same bits as reading it whole.
func TestGoldenInPieces(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, backend := range []string{"mmap", "pread"} {
		for _, c := range safetensorsCases() {
			t.Run(backend+"/"+c.Path, func(t *testing.T) {
				st := open(t, filepath.Join(goldenDir, c.Path), store.Config{Backend: backend})
				for _, want := range c.Tensors {
					h, err := st.Tensor(want.Name)
					if err != nil {
						t.Fatal(err)
					}
					for _, target := range targets {
						sha, ok := want.SHA256[target.key]
						if !ok {
							continue
						}
						dt, err := h.Decodes(ctx, target.dt)
						if err != nil {
							t.Fatal(err)
						}
						for what, read := range map[string]func(*store.Tensor, tensor.DType, []int64, *rand.Rand) ([]byte, error){
							"rows": readRows, "elements": readElements, "tiles": readTiles,
						} {
							data, err := read(h, dt, want.Shape, rng)
							if err != nil {
								t.Errorf("%s by %s: %v", want.Name, what, err)
								continue
							}
							if got := sum(data, dt, c.NaNCanonical); got != sha {
								t.Errorf("%s as %s by %s: sha256 %s, want %s", want.Name, target.key, what, got, sha)
							}
						}
					}
				}
			})
		}
	}
}

// pieces is the factor by which pieces are larger in a short test: each costs
// system calls.
func pieces() int64 {
	if testing.Short() {
		return 8
	}
	return 1
}

func numel(shape []int64) int64 {
	n, _ := tensor.Shape(shape).Numel()
	return n
}

func readRows(h *store.Tensor, dt tensor.DType, shape []int64, rng *rand.Rand) ([]byte, error) {
	if len(shape) == 0 {
		return readElements(h, dt, shape, rng)
	}
	buf := make([]byte, numel(shape)*int64(dt.Size()))
	row := int64(0)
	if shape[0] > 0 {
		row = int64(len(buf)) / shape[0]
	}
	for r0 := int64(0); r0 < shape[0]; {
		r1 := min(r0+1+rng.Int64N(5*pieces()), shape[0])
		if err := h.ReadRows(context.Background(), buf[r0*row:r1*row], dt, r0, r1); err != nil {
			return nil, err
		}
		r0 = r1
	}
	return buf, nil
}

func readElements(h *store.Tensor, dt tensor.DType, shape []int64, rng *rand.Rand) ([]byte, error) {
	n, size := numel(shape), int64(dt.Size())
	buf := make([]byte, n*size)
	for lo := int64(0); lo < n; {
		hi := min(lo+1+rng.Int64N(200*pieces()), n)
		if err := h.Read(context.Background(), buf[lo*size:hi*size], dt, lo, hi); err != nil {
			return nil, err
		}
		lo = hi
	}
	return buf, nil
}

func readTiles(h *store.Tensor, dt tensor.DType, shape []int64, rng *rand.Rand) ([]byte, error) {
	var buf []byte
	for tile, err := range h.Tiles(context.Background(), dt, 1+rng.IntN(5000)) {
		if err != nil {
			return nil, err
		}
		if tile.DType != dt || tile.Lo*int64(dt.Size()) != int64(len(buf)) {
			return nil, fmt.Errorf("tile [%d,%d) of %s after %d bytes", tile.Lo, tile.Hi, tile.DType, len(buf))
		}
		buf = append(buf, tile.Data...)
	}
	return buf, nil
}
