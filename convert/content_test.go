package convert_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/convert"
	"nibble/store"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// writeTensors writes a safetensors file of zeros.
func writeTensors(t *testing.T, path string, metadata map[string]string, tensors ...safetensors.Tensor) {
	t.Helper()
	l, err := safetensors.Encode(tensors, metadata)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(l.Header)+strings.Repeat("\x00", int(l.Size)-len(l.Header)))
}

// header reads the header of a file as the format has it.
func header(t *testing.T, path string) *safetensors.Header {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	h, err := safetensors.Read(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// From a folder to a folder goes what the model needs beside its weights, and
// nothing else; from a file, or to a file, nothing.
func TestSidecars(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	copyDir(t, goldenDir+"/model_sharded", in)
	copied := []string{
		"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
		"vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.jinja", "generation_config.json",
		"preprocessor_config.json", "processor_config.json",
	}
	left := []string{"README.md", "training_args.bin", "optimizer.pt", "trainer_state.json", ".gitattributes", "adapter_config.json"}
	for _, name := range append(copied, left...) {
		writeFile(t, filepath.Join(in, name), "of "+name)
	}
	if err := os.Mkdir(filepath.Join(in, "tokenizer_old"), 0o777); err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(in, "blob") // as in a Hugging Face cache
	writeFile(t, blob, "of vocab.bpe")
	if err := os.Symlink("blob", filepath.Join(in, "vocab.bpe")); err != nil {
		t.Fatal(err)
	}
	want := append(copied, "vocab.bpe", "config.json", "model.safetensors")
	slices.Sort(want)
	cache, unindexed := filepath.Join(dir, "cache"), filepath.Join(dir, "unindexed")
	for _, hub := range []string{cache, unindexed} {
		copyDir(t, in, filepath.Join(hub, "snapshots", "abc"))
		writeFile(t, filepath.Join(hub, "refs", "main"), "abc")
		writeFile(t, filepath.Join(hub, "tokenizer.json"), "not of the snapshot")
	}
	if err := os.Remove(filepath.Join(unindexed, "snapshots", "abc", "model.safetensors.index.json")); err != nil {
		t.Fatal(err)
	}
	for i, source := range []string{in, filepath.Join(in, "model.safetensors.index.json"), cache, unindexed} {
		out := filepath.Join(dir, fmt.Sprint("out", i))
		r := run(t, open(t, source, store.Config{}), out, convert.Options{DType: tensor.F16})
		files := tree(t, out)
		delete(files, ".")
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) || len(r.Files) != len(want) {
			t.Errorf("%s: %q and %d reported, want %q", source, got, len(r.Files), want)
		}
		for _, name := range append(copied, "vocab.bpe") {
			if files[name] != "of "+name {
				t.Errorf("%s is %q", name, files[name])
			}
		}
		var config map[string]any
		if err := json.Unmarshal([]byte(files["config.json"]), &config); err != nil {
			t.Fatal(err)
		}
		if _, ok := config["quantization_config"]; ok || config["torch_dtype"] != "float16" || config["hidden_size"] != 64.0 {
			t.Errorf("config: %v", config)
		}
	}
	run(t, open(t, in, store.Config{}), filepath.Join(dir, "file", "x.safetensors"), convert.Options{})
	one := filepath.Join(dir, "one.safetensors")
	writeTensors(t, one, nil)
	run(t, open(t, one, store.Config{}), filepath.Join(dir, "folder"), convert.Options{})
	for _, out := range []string{"file", "folder"} {
		if files := tree(t, filepath.Join(dir, out)); len(files) != 2 {
			t.Errorf("%s: %q, want one file", out, slices.Sorted(maps.Keys(files)))
		}
	}
}

// A broken sidecar is an error before anything is written.
func TestBrokenSidecar(t *testing.T) {
	for name, data := range map[string]string{"config.json": `{"a":`, "tokenizer.json": ""} {
		dir := t.TempDir()
		in := filepath.Join(dir, "in")
		writeTensors(t, filepath.Join(in, "model.safetensors"), nil)
		if data != "" {
			writeFile(t, filepath.Join(in, name), data)
		} else if err := os.Symlink("nowhere", filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
		before := tree(t, dir)
		_, err := convert.Run(t.Context(), open(t, in, store.Config{}), filepath.Join(dir, "out"), convert.Options{})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
		if after := tree(t, dir); !maps.Equal(before, after) {
			t.Errorf("%s: left %q", name, slices.Sorted(maps.Keys(after)))
		}
	}
}

// Metadata is kept in every shard; a format is added where there is none.
func TestMetadata(t *testing.T) {
	for _, c := range []struct{ in, want map[string]string }{
		{nil, map[string]string{"format": "pt"}},
		{map[string]string{"format": "np", "x": "\"é\n"}, map[string]string{"format": "np", "x": "\"é\n"}},
		{map[string]string{"tied": "b"}, map[string]string{"format": "pt", "tied": "b"}},
	} {
		dir := t.TempDir()
		in := filepath.Join(dir, "in.safetensors")
		writeTensors(t, in, c.in, safetensors.Tensor{Name: "a", DType: tensor.F32, Shape: tensor.Shape{4}}, safetensors.Tensor{Name: "b", DType: tensor.U8, Shape: tensor.Shape{2, 2}})
		st := open(t, in, store.Config{})
		r := run(t, st, filepath.Join(dir, "out"), convert.Options{MaxShardSize: 1})
		if !maps.Equal(r.Aliases, st.Aliases()) {
			t.Errorf("aliases %v, want %v", r.Aliases, st.Aliases())
		}
		for _, f := range r.Files[:2] {
			if got := header(t, f).Metadata; !maps.Equal(got, c.want) {
				t.Errorf("%s: metadata %v, want %v", f, got, c.want)
			}
		}
		sameTensors(t, st, filepath.Join(dir, "out"), tensor.Stored)
	}
}

// Tensors of a torch file that share their elements are there under each name.
func TestTies(t *testing.T) {
	st := open(t, filepath.Join(goldenDir, "pt/views.pt"), store.Config{})
	out := filepath.Join(t.TempDir(), "x.safetensors")
	if r := run(t, st, out, convert.Options{}); r.Tensors != st.Len() || len(r.Aliases) != 0 {
		t.Errorf("%d tensors and aliases %v, want all %d", r.Tensors, r.Aliases, st.Len())
	}
	h := header(t, out)
	for _, name := range []string{"embed.weight", "lm_head.weight"} {
		if _, ok := h.Lookup(name); !ok {
			t.Errorf("%s is not there", name)
		}
	}
}

// An alias of the source that its globs leave out is no alias of the output.
func TestAliasLeftOut(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	writeTensors(t, in, map[string]string{"tied": "b"},
		safetensors.Tensor{Name: "a", DType: tensor.F32, Shape: tensor.Shape{4}}, safetensors.Tensor{Name: "b", DType: tensor.U8, Shape: tensor.Shape{2, 2}})
	st := open(t, in, store.Config{}, store.WithInclude("a"))
	if r := run(t, st, filepath.Join(dir, "out"), convert.Options{}); len(r.Aliases) != 0 {
		t.Errorf("aliases %v of tensors that are not there", r.Aliases)
	}
}

// Shards are filled in the order of the source up to the size; a tensor above
// it has one of its own. The index is that of transformers.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	var tensors []safetensors.Tensor
	for i, n := range []int64{10, 50, 40, 101, 1, 0, 100} {
		tensors = append(tensors, safetensors.Tensor{Name: fmt.Sprint("t", i), DType: tensor.U8, Shape: tensor.Shape{n}})
	}
	writeTensors(t, in, nil, tensors...)
	out := filepath.Join(dir, "out")
	r := run(t, open(t, in, store.Config{}), out, convert.Options{MaxShardSize: 100})
	want := map[string]string{
		"t0": "model-00001-of-00004.safetensors", "t1": "model-00001-of-00004.safetensors", "t2": "model-00001-of-00004.safetensors",
		"t3": "model-00002-of-00004.safetensors", "t4": "model-00003-of-00004.safetensors", "t5": "model-00003-of-00004.safetensors",
		"t6": "model-00004-of-00004.safetensors",
	}
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		}
		WeightMap map[string]string `json:"weight_map"`
	}
	data, err := os.ReadFile(filepath.Join(out, "model.safetensors.index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(index.WeightMap, want) || index.Metadata.TotalSize != 302 || r.Bytes != 302 || r.Tensors != 7 {
		t.Errorf("index %+v, report %+v; want %v and 302 bytes", index, r, want)
	}
	for name, shard := range want {
		if _, ok := header(t, filepath.Join(out, shard)).Lookup(name); !ok {
			t.Errorf("%s is not in %s", name, shard)
		}
	}
}

// The float dtype of a report is that of most elements.
func TestFloatDType(t *testing.T) {
	for _, c := range []struct {
		f32, bf16, u8 int64
		asked, want   tensor.DType
	}{
		{10, 9, 100, tensor.Stored, tensor.F32}, {10, 11, 0, tensor.Stored, tensor.BF16}, {10, 11, 0, tensor.F16, tensor.F16},
		{0, 0, 5, tensor.F16, tensor.Stored},
	} {
		dir := t.TempDir()
		in := filepath.Join(dir, "in.safetensors")
		writeTensors(t, in, nil,
			safetensors.Tensor{Name: "a", DType: tensor.F32, Shape: tensor.Shape{c.f32}}, safetensors.Tensor{Name: "b", DType: tensor.BF16, Shape: tensor.Shape{c.bf16}},
			safetensors.Tensor{Name: "c", DType: tensor.U8, Shape: tensor.Shape{c.u8}})
		if r := run(t, open(t, in, store.Config{}), filepath.Join(dir, "out"), convert.Options{DType: c.asked}); r.FloatDType != c.want {
			t.Errorf("%+v: %s", c, r.FloatDType)
		}
	}
}
