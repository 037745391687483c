package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"nibble/store"
	"nibble/tensor"
)

// An overlay moves a restored weight to a shard of its own and leaves the old
// one behind, with its statistics. The index decides: what lies beside a copy
// that it does not choose belongs to nobody. Companions that it only forgets to
// name are those of their tensor, wherever they are.
func TestCompanionsLeftBehind(t *testing.T) {
	for name, c := range map[string]struct {
		index string
		b, c  []string // names in shards b and c
		plain bool     // w is
	}{
		"left behind":      {index("w@c.safetensors", "z@b.safetensors"), []string{"w", "w.absmax", "z"}, []string{"w"}, true},
		"forgotten":        {index("w@c.safetensors", "z@b.safetensors"), []string{"w.absmax", "z"}, []string{"w"}, false},
		"named":            {index("w@c.safetensors", "z@b.safetensors", "w.absmax@b.safetensors"), []string{"w.absmax", "z"}, []string{"w"}, false},
		"beside":           {index("w@c.safetensors", "z@b.safetensors"), []string{"z"}, []string{"w", "w.absmax"}, false},
		"neither is named": {index("z@b.safetensors", "y@c.safetensors"), []string{"z", "w.absmax"}, []string{"y", "w"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, filepath.Join(dir, "b.safetensors"), c.b...)
			put(t, filepath.Join(dir, "c.safetensors"), c.c...)
			write(t, filepath.Join(dir, "model.safetensors.index.json"), c.index)
			st := open(t, dir, store.Config{})
			err := release(find(t, st, "w").Acquire(context.Background(), tensor.F32))
			if (err == nil) != c.plain {
				t.Errorf("w: %v; want a plain tensor: %v", err, c.plain)
			}
			if _, err := st.Tensor("w.absmax"); (err == nil) != c.plain {
				t.Errorf("w.absmax: %v; want a tensor: %v", err, c.plain)
			}
		})
	}
}

// Of companions in two shards that the index does not name, those beside their
// tensor are its own, not those that are met first.
func TestCompanionsBesideTheirTensor(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "b.safetensors"), "z", "w.absmax")
	put(t, filepath.Join(dir, "c.safetensors"), "w", "w.absmax")
	write(t, filepath.Join(dir, "model.safetensors.index.json"), index("w@c.safetensors", "z@b.safetensors"))
	st := open(t, dir, store.Config{})
	for s := range st.StoredTensors() {
		if info, _ := s.Info(context.Background()); info.Name == "w.absmax" && info.File != "c.safetensors" {
			t.Errorf("%s comes from %s", info.Name, info.File)
		}
	}
	if _, err := st.Tensor("w.absmax"); err == nil {
		t.Error("w.absmax is a tensor of its own")
	}
}
