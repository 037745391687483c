package store_test

import (
	"path/filepath"
	"testing"

	"nibble/store"
)

// Files are found in Dir, whatever kind of path was opened.
func TestDirAndIndex(t *testing.T) {
	sharded, single := filepath.Join(goldenDir, "model_sharded"), filepath.Join(goldenDir, "model_single")
	for _, c := range []struct{ path, dir, index string }{
		{sharded, sharded, filepath.Join(sharded, "model.safetensors.index.json")},
		{filepath.Join(sharded, "model.safetensors.index.json"), sharded, filepath.Join(sharded, "model.safetensors.index.json")},
		{single, single, ""},
		{filepath.Join(single, "model.safetensors"), single, ""},
	} {
		st := open(t, c.path, store.Config{})
		if st.Dir() != c.dir || st.Index() != c.index {
			t.Errorf("%s: Dir %q, Index %q; want %q, %q", c.path, st.Dir(), st.Index(), c.dir, c.index)
		}
	}
}
