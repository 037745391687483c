package convert_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"nibble/convert"
	"nibble/store"
	"nibble/tensor"
)

var targets = []struct {
	key string
	dt  tensor.DType
}{{"restored", tensor.Stored}, {"f32", tensor.F32}, {"f16", tensor.F16}, {"bf16", tensor.BF16}}

// torchName is the name of a tensor by its path in the manifest.
func torchName(t *testing.T, name string, raw json.RawMessage) string {
	var path []any
	if raw == nil {
		return name
	}
	if err := json.Unmarshal(raw, &path); err != nil {
		t.Fatal(err)
	}
	if len(path) == 0 {
		return "tensor"
	}
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = fmt.Sprint(p)
	}
	return strings.Join(parts, ".")
}

// What is written decodes, under the names of the source, to the bits that the
// reference implementation computes.
func TestGolden(t *testing.T) {
	for _, c := range readManifest().Cases {
		for _, target := range targets {
			if testing.Short() && target.dt == tensor.BF16 {
				continue
			}
			t.Run(c.Path+"/"+target.key, func(t *testing.T) {
				t.Parallel() // most of the time is spent waiting for the disk
				st := open(t, filepath.Join(goldenDir, c.Path), store.Config{CacheBudget: 1 << 20})
				outs := convertBoth(t, st, target.dt)
				if outs == nil {
					return
				}
				for _, out := range outs {
					sameTensors(t, st, out, target.dt)
					got := open(t, out, store.Config{})
					for _, want := range c.Tensors {
						h, err := got.Tensor(torchName(t, want.Name, want.Path))
						if err != nil {
							t.Error(err)
							continue
						}
						sha, ok := want.SHA256[target.key]
						if !ok {
							sha = want.SHA256["restored"]
						}
						if have := sum(t, h, tensor.Stored); !c.NaNCanonical && !strings.HasSuffix(have, " "+sha) {
							t.Errorf("%s as %s: %s, want %s", h.Name(), target.key, have, sha)
						}
					}
				}
			})
		}
	}
}

// convertBoth converts to a file and to a folder of shards. It returns nil when
// st holds what safetensors cannot, after checking that all of it is named.
func convertBoth(t *testing.T, st *store.Store, dt tensor.DType) []string {
	t.Helper()
	dir := t.TempDir()
	outs := []string{filepath.Join(dir, "deep", "one.safetensors"), filepath.Join(dir, "shards")}
	for i, size := range []int64{1 << 30, max(st.StoredBytes()/2, 1)} {
		r, err := convert.Run(t.Context(), st, outs[i], convert.Options{DType: dt, MaxShardSize: size})
		var refused *convert.RefusedError
		if errors.As(err, &refused) {
			checkRefused(t, st, err, dt)
			if left := tree(t, dir); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Tensors != st.Len() {
			t.Errorf("%d tensors written, the source has %d", r.Tensors, st.Len())
		}
		for _, f := range r.Files {
			if _, err := os.Stat(f); err != nil {
				t.Errorf("reported and not there: %v", err)
			}
		}
	}
	return outs
}

// checkRefused checks that err names every tensor that is broken or of a dtype
// that safetensors lacks, and no other.
func checkRefused(t *testing.T, st *store.Store, err error, dt tensor.DType) {
	t.Helper()
	for h := range st.Tensors() {
		got, derr := h.Decodes(t.Context(), dt)
		bad := derr != nil || got.Safetensors() == ""
		if named := strings.Contains(err.Error(), fmt.Sprintf("%q: ", h.Name())); named != bad {
			t.Errorf("%q: named %v, want %v: %v", h.Name(), named, bad, err)
		}
	}
}

// Every file of other people that opens converts, or is refused by name.
func TestWild(t *testing.T) {
	dir := wild(t)
	var converted atomic.Int64
	t.Cleanup(func() {
		if converted.Load() == 0 {
			t.Error("no wild file opened")
		}
	})
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type().IsRegular() && strings.HasSuffix(path, ".tsv") {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		t.Run(rel, func(t *testing.T) {
			t.Parallel()
			st, err := store.Open(t.Context(), path)
			if err != nil {
				t.Skip(err)
			}
			defer st.Close()
			for _, target := range targets {
				for _, out := range convertBoth(t, st, target.dt) {
					converted.Add(1)
					sameTensors(t, st, out, target.dt)
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
