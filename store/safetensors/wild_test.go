package safetensors

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"nibble/internal/rule"
)

// wildDir is the folder of other people's files; they are read where present
// and never committed.
func wildDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NIBBLE_WILD")
	if dir == "" {
		dir = "../../../shared/wild"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no wild files: set NIBBLE_WILD")
	}
	return dir
}

// TestWildHeaders compares every file with the offsets, sizes and hashes that
// another reader found in it.
func TestWildHeaders(t *testing.T) {
	dir := wildDir(t)
	var (
		name string
		file []byte
		h    *Header
	)
	rows := strings.Split(strings.TrimSpace(string(readFile(t, filepath.Join(dir, "expected_safetensors.tsv")))), "\n")[1:]
	for _, row := range rows {
		c := strings.Split(row, "\t") // file tensor dtype shape abs_offset nbytes sha256_raw
		if c[0] != name {
			name, file = c[0], readFile(t, filepath.Join(dir, c[0]))
			var err error
			if h, err = read(file); err != nil {
				t.Fatal(name, err)
			}
		}
		i, ok := h.Lookup(c[1])
		if !ok {
			t.Errorf("%s: no tensor %q", name, c[1])
			continue
		}
		got := h.Tensors[i]
		if got.DType.Safetensors() != c[2] || got.Shape.String() != strings.ReplaceAll(c[3], " ", "") ||
			strconv.FormatInt(got.Begin, 10) != c[4] || strconv.FormatInt(got.End-got.Begin, 10) != c[5] ||
			hexSum(file[got.Begin:got.End]) != c[6] {
			t.Errorf("%s: got %+v, want %v", name, got, c)
		}
	}
}

// wildRefused are the variants whose header, or whose whole, is wrong. All
// others open: what is wrong with them is for the decoders.
var wildRefused = map[string]struct {
	rule   rule.ID
	words  string
	tensor string
}{
	"meta_number":           {rule.HeaderJSON, "__metadata__", "__metadata__"},
	"trailing_16":           {rule.Length, "16 trailing bytes: file has 2927 bytes, header covers 2911", ""},
	"float_offsets":         {rule.Offsets, "data_offsets holds 0.0, not an integer", "model.layers.0.mlp.gate_proj.weight.absmax"},
	"overlap":               {rule.Offsets, `overlap those of "`, ""},
	"hole":                  {rule.Offsets, "hole of 64 bytes before it", "model.layers.0.mlp.gate_proj.weight"},
	"unknown_dtype":         {rule.HeaderDType, "unknown dtype", ""},
	"hdr_shape_overflow":    {rule.HeaderShape, "size overflows", "z"},
	"hdr_shape_negative":    {rule.HeaderShape, "shape holds -1", ""},
	"hdr_shape_float":       {rule.HeaderShape, "shape holds 2.0", ""},
	"hdr_f32_7_bytes":       {rule.HeaderShape, "takes 4 bytes", ""},
	"hdr_end_before_begin":  {rule.Offsets, "end before they begin: [8,0]", ""},
	"hdr_offset_2e63":       {rule.Offsets, "data_offsets holds 9223372036854775808", "t"},
	"hdr_leading_space":     {rule.HeaderJSON, "not with '{'", ""},
	"lfs_pointer":           {rule.NotSafetensors, "LFS pointer, not the file of 3437 bytes", ""},
	"html_page":             {rule.NotSafetensors, "HTML", ""},
	"zero_bytes":            {rule.NotSafetensors, "empty", ""},
	"seven_bytes":           {rule.HeaderLength, "truncated", ""},
	"header_len_max":        {rule.HeaderLength, "header length 18446744073709551615", ""},
	"trunc_data_1":          {rule.Length, "truncated: file has 2910 bytes, header covers 2911", ""},
	"zip_named_safetensors": {rule.NotSafetensors, "zip", ""},
}

// TestWildVariants opens every odd variant.
func TestWildVariants(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(wildDir(t), "variants", "*.safetensors"))
	if err != nil || len(files) < len(wildRefused) {
		t.Fatal(len(files), "variants", err)
	}
	for _, path := range files {
		key := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		t.Run(key, func(t *testing.T) {
			_, err := read(readFile(t, path))
			w, refused := wildRefused[key]
			if !refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, ok := err.(*rule.Error)
			if !ok || e.Rule != w.rule || !strings.Contains(e.Error(), w.words) || w.tensor != "" && e.Tensor != w.tensor {
				t.Errorf("got %v\nwant %s %q: … %s", err, w.rule, w.tensor, w.words)
			}
		})
	}
}

// TestWildFacts checks what the variants that open are about.
func TestWildFacts(t *testing.T) {
	dir := filepath.Join(wildDir(t), "variants")
	open := func(name string) *Header {
		h, err := read(readFile(t, filepath.Join(dir, name+".safetensors")))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := open("hdr_empty_object"); len(h.Tensors) != 0 || h.DataStart != 16 {
		t.Errorf("{}: got %+v", h)
	}
	if h := open("meta_null"); h.Metadata != nil {
		t.Errorf("null: got %v", h.Metadata)
	}
	if h := open("meta_empty"); h.Metadata == nil || len(h.Metadata) != 0 {
		t.Errorf("{}: got %v", h.Metadata)
	}
	if h := open("hdr_tied_alias"); h.Metadata["model.shared.weight"] == "" {
		t.Errorf("alias: got %v", h.Metadata)
	}
	if h := open("misaligned_2_nested"); h.DataStart%8 != 5 {
		t.Errorf("data at %d", h.DataStart)
	}
	h := open("unicode_names")
	for _, name := range []string{"层.0.权重", "a\x00b", "", `quote"\/back`} {
		if _, ok := h.Lookup(name); !ok {
			t.Errorf("no tensor %q", name)
		}
	}
}

// TestWildIndexes parses every index.
func TestWildIndexes(t *testing.T) {
	dir := wildDir(t)
	for pattern, shards := range map[string]int{
		"joaopauloschuler__neural-api__tiny_llama.safetensors.index.json": 2,
		"joaopauloschuler__neural-api__tiny_gpt2.bin.index.json":          2,
		"variants/sharded_missing/*.index.json":                           2,
		"variants/sharded_index_lies/*.index.json":                        1,
		"sharded_tiny_llama/model.safetensors.index.json":                 2,
		"sharded_tiny_gpt2_bin/pytorch_model.bin.index.json":              2,
	} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatal(pattern, files, err)
		}
		x, err := ParseIndex(readFile(t, files[0]))
		if err != nil || len(x.Shards) != shards || len(x.WeightMap) == 0 {
			t.Errorf("%s: %+v, %v", pattern, x, err)
		}
	}
}
