package store_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/store"
)

// PATH may be the folder of a Hugging Face cache: names of files are relative to
// PATH all the same, and what the index says of its shards still holds.
func TestNamesInHubCache(t *testing.T) {
	for what, index := range map[string]string{"no index": "", "index": index("a@m-00001-of-00002.safetensors", "b@m-00002-of-00002.safetensors", "c@m-00002-of-00002.safetensors")} {
		dir := t.TempDir()
		snapshot := filepath.Join(dir, "snapshots", "abc")
		put(t, filepath.Join(snapshot, "m-00001-of-00002.safetensors"), "a", "b")
		put(t, filepath.Join(snapshot, "m-00002-of-00002.safetensors"), "b")
		write(t, filepath.Join(dir, "refs", "main"), "abc")
		want := map[string]string{"a": "snapshots/abc/m-00001-of-00002.safetensors", "b": "snapshots/abc/m-00001-of-00002.safetensors"}
		if index != "" {
			write(t, filepath.Join(snapshot, "m.safetensors.index.json"), index)
			want["b"], want["c"] = "snapshots/abc/m-00002-of-00002.safetensors", "snapshots/abc/m-00002-of-00002.safetensors"
		}
		st := open(t, dir, store.Config{})
		got := map[string]string{}
		for h := range st.Tensors() {
			info, err := h.Info(t.Context())
			got[h.Name()] = info.File
			if broken := h.Name() == "c"; (err != nil) != broken || broken && !strings.Contains(err.Error(), "IDX-003") {
				t.Errorf("%s: %s: error %v", what, h.Name(), err)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: files %q, want %q", what, got, want)
		}
		if st.Dir() != dir || !slices.Equal(st.Files(), []string{want["a"], "snapshots/abc/m-00002-of-00002.safetensors"}) {
			t.Errorf("%s: Dir %q, Files %q", what, st.Dir(), st.Files())
		}
	}
}

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
