package store_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/store"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// put writes a safetensors file with one F32 tensor of one element a name.
func put(t *testing.T, path string, names ...string) {
	t.Helper()
	var ts []safetensors.Tensor
	for _, n := range names {
		ts = append(ts, safetensors.Tensor{Name: n, DType: tensor.F32, Shape: tensor.Shape{1}})
	}
	l, err := safetensors.Encode(ts, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, l.Size)
	copy(data, l.Header)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Skip(err)
	}
}

func index(places ...string) string {
	var pairs []string
	for _, p := range places {
		name, shard, _ := strings.Cut(p, "@")
		pairs = append(pairs, `"`+name+`": "`+shard+`"`)
	}
	return `{"metadata": {}, "weight_map": {` + strings.Join(pairs, ", ") + `}}`
}

// What a path or a directory turns out to be: the names found, or a word of the
// error.
func TestLocate(t *testing.T) {
	for _, c := range []struct {
		what  string
		make  func(t *testing.T, dir string)
		path  string // relative to the directory
		want  []string
		err   string
		class error
		note  string
	}{
		{what: "a single file beside what is not the model", make: func(t *testing.T, d string) {
			put(t, d+"/model.safetensors", "a")
			put(t, d+"/consolidated.safetensors", "b")
			write(t, d+"/training_args.bin", "x")
		}, want: []string{"a"}, note: "consolidated.safetensors"},
		{what: "an index decides over a single file", make: func(t *testing.T, d string) {
			put(t, d+"/model.safetensors", "quantized")
			put(t, d+"/model-00001-of-00002.safetensors", "a")
			put(t, d+"/model-00002-of-00002.safetensors", "b")
			write(t, d+"/model.safetensors.index.json", index("a@model-00001-of-00002.safetensors", "b@model-00002-of-00002.safetensors"))
		}, want: []string{"a", "b"}, note: "model.safetensors"},
		{what: "safetensors before torch", make: func(t *testing.T, d string) {
			put(t, d+"/model.safetensors", "a")
			write(t, d+"/pytorch_model.bin", "x")
		}, want: []string{"a"}},
		{what: "an adapter", make: func(t *testing.T, d string) { put(t, d+"/adapter_model.safetensors", "lora_A.weight") }, want: []string{"lora_A.weight"}},
		{what: "diffusers' name", make: func(t *testing.T, d string) {
			put(t, d+"/diffusion_pytorch_model.safetensors", "a")
			write(t, d+"/config.json", "{}")
		}, want: []string{"a"}},
		{what: "shards without an index", make: func(t *testing.T, d string) {
			put(t, d+"/m-00001-of-00002.safetensors", "a")
			put(t, d+"/m-00002-of-00002.safetensors", "b")
		}, want: []string{"a", "b"}},
		{what: "shards without an index, one missing", make: func(t *testing.T, d string) {
			put(t, d+"/m-00001-of-00002.safetensors", "a")
		}, err: "missing 1 shard: m-00002-of-00002.safetensors", class: store.ErrNotFound},
		{what: "one shard, asked for by its name", make: func(t *testing.T, d string) {
			put(t, d+"/m-00001-of-00002.safetensors", "a")
		}, path: "m-00001-of-00002.safetensors", want: []string{"a"}},
		{what: "two of three shards", make: func(t *testing.T, d string) {
			put(t, d+"/m-00001-of-00003.safetensors", "a")
			put(t, d+"/m-00003-of-00003.safetensors", "c")
		}, err: "m-00002-of-00003.safetensors", class: store.ErrNotFound},
		{what: "several unrelated files", make: func(t *testing.T, d string) {
			put(t, d+"/x.safetensors", "a")
			put(t, d+"/y.safetensors", "b")
		}, err: "name one"},
		{what: "several unrelated files of several kinds are all named", make: func(t *testing.T, d string) {
			put(t, d+"/x.safetensors", "a")
			put(t, d+"/y.safetensors", "b")
			put(t, d+"/z.bin", "c")
			put(t, d+"/last.ckpt", "d")
			put(t, d+"/optimizer.bin", "e")
		}, err: "name one: x.safetensors, y.safetensors, z.bin, last.ckpt"},
		{what: "Mistral's own layout", make: func(t *testing.T, d string) {
			put(t, d+"/consolidated.safetensors", "a")
			write(t, d+"/params.json", "{}")
			write(t, d+"/tokenizer.model.v3", "x")
		}, want: []string{"a"}, note: "no model under a usual name: opened consolidated.safetensors"},
		{what: "Mistral's own layout in shards", make: func(t *testing.T, d string) {
			put(t, d+"/consolidated-00001-of-00002.safetensors", "a")
			put(t, d+"/consolidated-00002-of-00002.safetensors", "b")
		}, want: []string{"a", "b"}, note: "opened consolidated-00001-of-00002.safetensors, …"},
		{what: "Mistral's own layout, a shard missing", make: func(t *testing.T, d string) {
			put(t, d+"/consolidated-00001-of-00002.safetensors", "a")
		}, err: "missing 1 shard: consolidated-00002-of-00002.safetensors", class: store.ErrNotFound},
		{what: "a model of any usual name before Mistral's own", make: func(t *testing.T, d string) {
			put(t, d+"/consolidated.safetensors", "a")
			put(t, d+"/other.bin", "b")
			put(t, d+"/last.ckpt", "c")
		}, want: []string{"b"}, note: "left alone: consolidated.safetensors"},
		{what: "tensor-parallel parts are no set", make: func(t *testing.T, d string) {
			put(t, d+"/consolidated.00.pth", "a")
			put(t, d+"/consolidated.01.pth", "a")
		}, err: "name one: consolidated.00.pth, consolidated.01.pth"},
		{what: "a .ckpt alone", make: func(t *testing.T, d string) {
			put(t, d+"/last.ckpt", "a")
			put(t, d+"/optimizer.pkl", "b")
			put(t, d+"/rng_state_0.pkl", "b")
			put(t, d+"/scheduler.ckpt", "b")
			put(t, d+"/training_args.bin", "b")
			write(t, d+"/vocab.pkl", "no pickle")
		}, want: []string{"a"}, note: "opened last.ckpt"},
		{what: "a .th alone", make: func(t *testing.T, d string) { put(t, d+"/htdemucs.th", "a") }, want: []string{"a"}, note: "opened htdemucs.th"},
		{what: "a .pkl and a .ckpt", make: func(t *testing.T, d string) {
			put(t, d+"/x.pkl", "a")
			put(t, d+"/x.ckpt", "a")
		}, err: "name one: x.ckpt, x.pkl"},
		{what: "a .ckpt of another program", make: func(t *testing.T, d string) {
			write(t, d+"/model.ckpt", "\x01\x02 of TensorFlow")
		}, err: "not the model: model.ckpt", class: store.ErrNotFound},
		{what: "a .ckpt that was not downloaded", make: func(t *testing.T, d string) {
			link(t, "../../blobs/1f00", d+"/last.ckpt")
		}, err: "link to ../../blobs/1f00", class: store.ErrNotFound},
		{what: "a .ckpt that Git LFS did not fetch", make: func(t *testing.T, d string) {
			write(t, d+"/last.ckpt", "version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("0", 64)+"\nsize 5\n")
		}, err: "git lfs pull", class: store.ErrCorrupt},
		{what: "an optimizer is never the model", make: func(t *testing.T, d string) {
			for _, n := range []string{"optimizer.safetensors", "optimizer.pth", "scheduler.safetensors", "rng_state.safetensors", "rng_state_1.pt", "training_args.bin"} {
				put(t, d+"/"+n, "a")
			}
			write(t, d+"/optimizer.bin.index.json", index("a@optimizer.pth"))
		}, err: "no checkpoint", class: store.ErrNotFound},
		{what: "an empty directory", make: func(t *testing.T, d string) {}, err: "no checkpoint", class: store.ErrNotFound},
		{what: "only what is not the model", make: func(t *testing.T, d string) { write(t, d+"/optimizer.bin", "x") }, err: "optimizer.bin", class: store.ErrNotFound},
		{what: "missing shards are all named, with what is there instead", make: func(t *testing.T, d string) {
			put(t, d+"/other-00001-of-00001.safetensors", "a")
			write(t, d+"/model.safetensors.index.json", index("a@m1.safetensors", "b@m2.safetensors"))
		}, err: "m1.safetensors, m2.safetensors; the index may be stale: 1 file beside it that it does not name: other-00001-of-00001.safetensors", class: store.ErrNotFound},
		{what: "a hub cache: links to blobs without extension", make: func(t *testing.T, d string) {
			put(t, d+"/blobs/1f00", "a")
			put(t, d+"/blobs/2f00", "b")
			write(t, d+"/blobs/3f00", index("a@model-00001-of-00002.safetensors", "b@model-00002-of-00002.safetensors"))
			link(t, "../../blobs/1f00", d+"/snapshots/abc/model-00001-of-00002.safetensors")
			link(t, "../../blobs/2f00", d+"/snapshots/abc/model-00002-of-00002.safetensors")
			link(t, "../../blobs/3f00", d+"/snapshots/abc/model.safetensors.index.json")
			write(t, d+"/refs/main", "abc")
			write(t, d+"/snapshots/old/model.safetensors", "")
		}, want: []string{"a", "b"}},
		{what: "a hub cache of one snapshot, beside a stray file", make: func(t *testing.T, d string) {
			put(t, d+"/snapshots/abc/model.safetensors", "a")
			write(t, d+"/snapshots/.DS_Store", "x")
			write(t, d+"/refs/main", "gone\n")
		}, want: []string{"a"}, note: "gone"},
		{what: "a model beside a folder called snapshots", make: func(t *testing.T, d string) {
			put(t, d+"/model.safetensors", "a")
			put(t, d+"/snapshots/step100/model.safetensors", "b")
		}, want: []string{"a"}},
		{what: "a hub cache of several snapshots", make: func(t *testing.T, d string) {
			put(t, d+"/snapshots/abc/model.safetensors", "a")
			put(t, d+"/snapshots/def/model.safetensors", "a")
		}, err: "name one: abc, def"},
		{what: "a hub cache without a snapshot", make: func(t *testing.T, d string) {
			write(t, d+"/snapshots/.DS_Store", "x")
		}, err: "no snapshot", class: store.ErrNotFound},
		{what: "a shard beyond its set", make: func(t *testing.T, d string) {
			for _, i := range []string{"1", "2", "3"} {
				put(t, d+"/m-0000"+i+"-of-00002.safetensors", i)
			}
		}, err: "shard 3 of a set of 2"},
		{what: "a set of nothing", make: func(t *testing.T, d string) {
			put(t, d+"/m-00001-of-00000.safetensors", "a")
		}, err: "not believable"},
		{what: "a blob by its own name", make: func(t *testing.T, d string) { put(t, d+"/blobs/1f00", "a") }, path: "blobs/1f00", want: []string{"a"}},
		{what: "a link to a blob that was not downloaded", make: func(t *testing.T, d string) {
			link(t, "../../blobs/1f00", d+"/snapshots/abc/model.safetensors")
		}, path: "snapshots/abc", err: "../../blobs/1f00", class: fs.ErrNotExist},
		{what: "any file name", make: func(t *testing.T, d string) { put(t, d+"/weights.v2", "a") }, path: "weights.v2", want: []string{"a"}},
		{what: "an index under any name", make: func(t *testing.T, d string) {
			put(t, d+"/s", "a")
			write(t, d+"/idx", " \n"+index("a@s"))
		}, path: "idx", want: []string{"a"}},
		{what: "the index wins over a stale copy", make: func(t *testing.T, d string) {
			put(t, d+"/s1", "a", "b")
			put(t, d+"/s2", "b")
			write(t, d+"/model.safetensors.index.json", index("a@s1", "b@s2"))
		}, want: []string{"a", "b"}, note: "stale"},
		{what: "a header whose length looks like a brace", make: func(t *testing.T, d string) {
			put(t, d+"/m", strings.Repeat("n", 0x7b+5))
		}, path: "m", want: []string{strings.Repeat("n", 0x7b+5)}},
		{what: "nothing there", make: func(t *testing.T, d string) {}, path: "none", err: "none", class: fs.ErrNotExist},
		{what: "an index that leaves the directory", make: func(t *testing.T, d string) {
			write(t, d+"/model.safetensors.index.json", index("a@../s"))
		}, err: "IDX-004", class: store.ErrCorrupt},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			st, err := store.Open(context.Background(), filepath.Join(dir, c.path))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || c.class != nil && !errors.Is(err, c.class) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			var names []string
			for h := range st.Tensors() {
				names = append(names, h.Name())
			}
			if !slices.Equal(names, c.want) {
				t.Errorf("tensors %q, want %q", names, c.want)
			}
			if notes := strings.Join(st.Notes(), "; "); !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// A checkpoint in memory gives the same tensors as the file.
func TestOpenReaderAt(t *testing.T) {
	ctx := context.Background()
	for _, c := range readManifest().Cases {
		if c.Container == "safetensors-index" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(goldenDir, c.Path))
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.OpenReaderAt(ctx, c.Path, strings.NewReader(string(data)), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.Tensors {
			checkTensor(t, st, torchName(t, want), want, c.NaNCanonical)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := store.OpenReaderAt(ctx, "broken", failing{}, 1000); !errors.Is(err, errDisk) {
		t.Errorf("a reader that fails: %v", err)
	}
}

var errDisk = errors.New("disk on fire")

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

var _ io.ReaderAt = failing{}

// Include and exclude choose by whole names; companions follow their weight.
func TestIncludeExclude(t *testing.T) {
	st := open(t, modelFile, store.Config{}, store.WithInclude("model.layers.[01].*", "lm_head.weight"), store.WithExclude("*norm*"))
	for h := range st.Tensors() {
		if n := h.Name(); strings.Contains(n, "norm") || !strings.HasPrefix(n, "model.layers.0.") && !strings.HasPrefix(n, "model.layers.1.") && n != "lm_head.weight" {
			t.Errorf("%s is shown", n)
		}
		if err := release(h.Acquire(context.Background(), tensor.F16)); err != nil {
			t.Error(err)
		}
	}
	if st.Len() != 15 {
		t.Errorf("%d tensors, want 7 a layer and the head", st.Len())
	}
	if _, err := store.Open(context.Background(), modelFile, store.WithInclude("a[")); err == nil {
		t.Error("a broken glob is no error")
	}
}

// A name that is not there suggests what may be meant, and an alias finds its
// owner.
func TestNames(t *testing.T) {
	st := open(t, modelFile, store.Config{})
	_, err := st.Tensor("lm_head.wieght")
	var nf *store.NotFoundError
	if !errors.As(err, &nf) || !errors.Is(err, store.ErrNotFound) || !slices.Contains(nf.Nearest(), "lm_head.weight") {
		t.Errorf("a misspelt name: %v", err)
	}
	_, err = st.Tensor("model.layers.0.mlp.up_proj.weight.absmax")
	if !errors.As(err, &nf) || !slices.Equal(nf.Nearest(), []string{"model.layers.0.mlp.up_proj.weight"}) {
		t.Errorf("a companion: %v", err)
	}
	tied := open(t, filepath.Join(wild(t), "variants", "hdr_tied_alias.safetensors"), store.Config{})
	for alias, owner := range tied.Aliases() {
		h, err := tied.Tensor(alias)
		if err != nil || h.Name() != owner {
			t.Errorf("alias %s: %v, %v, want %s", alias, h, err, owner)
		}
	}
	if len(tied.Aliases()) != 1 {
		t.Errorf("aliases %v, want the one that names a tensor", tied.Aliases())
	}
}
