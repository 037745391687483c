package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/store"
	"nibble/tensor"
)

// The bitsandbytes files of other people decode to what bitsandbytes made of
// them, and so do the variants of those files that are to be read alike. fp4
// aside: there the recording has -0.0 for code 8, where the reference table has
// +0.0.
func TestWildBnb(t *testing.T) {
	dir := wild(t)
	cases := map[string]string{
		"bnb/llama_1b_nf4.safetensors":              "llama_1b_nf4",
		"bnb/llama_1b_nf4_double_quant.safetensors": "llama_1b_nf4_double_quant",
		"bnb/llama_1b_fp4.safetensors":              "llama_1b_fp4",
		"bnb/llama_1b_int8.safetensors":             "llama_1b_int8",
	}
	for row := range tsv(t, filepath.Join(dir, "variants", "manifest.tsv")) {
		right := row["right_behaviour"]
		i := strings.Index(right, "dequantized BF16 == ../bnb/")
		if i < 0 || strings.HasPrefix(right, "error") {
			continue
		}
		want := strings.TrimPrefix(right[i:], "dequantized BF16 == ../bnb/")
		cases["variants/"+row["file"]], _, _ = strings.Cut(want, ".expected")
	}
	for path, want := range cases {
		t.Run(path, func(t *testing.T) {
			expected, err := os.ReadFile(filepath.Join(dir, "bnb", want+".expected_bf16.bin"))
			if err != nil {
				t.Fatal(err)
			}
			st := open(t, filepath.Join(dir, path), store.Config{})
			for h := range st.Tensors() {
				info, err := h.Info(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if info.Scheme == store.SchemePlain {
					continue
				}
				l, err := h.Acquire(context.Background(), tensor.BF16)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Release()
				compareBF16(t, l.Bytes(), expected, info.Scheme == store.SchemeFP4)
			}
		})
	}
}

func compareBF16(t *testing.T, host, expected []byte, signless bool) {
	t.Helper()
	got := make([]byte, len(host))
	tensor.LittleEndian(got, host, 2)
	if len(got) != len(expected) {
		t.Fatalf("%d bytes, want %d", len(got), len(expected))
	}
	for i := 0; i < len(got); i += 2 {
		g, w := uint16(got[i])|uint16(got[i+1])<<8, uint16(expected[i])|uint16(expected[i+1])<<8
		if signless && g == 0 && w == 0x8000 {
			continue
		}
		if g != w {
			t.Fatalf("element %d is %#04x, want %#04x", i/2, g, w)
		}
	}
}

// variantErrors says for each variant that must not be decoded what its error
// says: the rule, and a word. "open" in front means that the file as a whole is
// refused.
var variantErrors = map[string][2]string{
	"shape_mismatch": {"BNB-102", "bytes"}, "shape_huge": {"BNB-104", "shape"}, "shape_negative": {"BNB-104", "shape"},
	"blocksize_zero": {"BNB-001", "blocksize"}, "blocksize_128_lie": {"BNB-102", "absmax"}, "blocksize_63": {"BNB-001", "63"},
	"absmax_short": {"BNB-102", "absmax"}, "missing_absmax": {"BNB-101", "absmax"},
	"two_quant_states": {"BNB-105", "two quant states"}, "quant_state_nul": {"BNB-103", "quant_state"},
	"quant_state_empty": {"BNB-103", "empty"}, "quant_state_padded": {"BNB-103", "NUL"},
	"quant_state_type_lies": {"BNB-105", "fp4"}, "nested_offset_missing": {"BNB-004", "nested_offset"},
	"nested_offset_null": {"BNB-004", "nested_offset"}, "nested_absmax_missing": {"BNB-004", "nested_absmax"},
	"nested_map_missing": {"BNB-004", "nested"}, "quant_map_missing": {"BNB-101", "quant_map"},
	"quant_map_15": {"BNB-102", "quant_map"}, "dtype_unknown": {"BNB-104", "dtype"},

	"meta_number": {"ST-002", "__metadata__"}, "trailing_16": {"ST-007", "trailing"}, "float_offsets": {"ST-006", ""},
	"overlap": {"ST-006", "overlap"}, "hole": {"ST-006", "hole"}, "unknown_dtype": {"ST-004", "dtype"},
	"hdr_shape_overflow": {"ST-005", "z"}, "hdr_shape_negative": {"ST-005", "shape"}, "hdr_shape_float": {"ST-005", "shape"},
	"hdr_f32_7_bytes": {"ST-005", "7"}, "hdr_end_before_begin": {"ST-006", ""}, "hdr_offset_2e63": {"ST-00", ""},
	"hdr_leading_space": {"ST-002", ""}, "sharded_missing/": {"IDX-002", "model-00002-of-00002.safetensors"},
	"sharded_index_lies/": {"BNB-101", "quant_map"}, "lfs_pointer": {"ST-008", "LFS"}, "html_page": {"ST-008", "HTML"},
	"zero_bytes": {"ST-008", "empty"}, "seven_bytes": {"ST-001", ""}, "header_len_max": {"ST-001", ""},
	"trunc_data_1": {"ST-007", "truncated"},
}

// Every row of the variants' manifest that says error is one, with its rule,
// and the other rows open.
func TestWildVariants(t *testing.T) {
	dir := filepath.Join(wild(t), "variants")
	for row := range tsv(t, filepath.Join(dir, "manifest.tsv")) {
		name := strings.TrimSuffix(row["file"], ".safetensors")
		t.Run(name, func(t *testing.T) {
			_, err := readAll(filepath.Join(dir, row["file"]))
			want, bad := variantErrors[name]
			if !bad {
				if err != nil && name != "zip_named_safetensors" {
					t.Errorf("%v; want: %s", err, row["right_behaviour"])
				}
				return
			}
			var e *store.Error
			if !errors.As(err, &e) || !strings.HasPrefix(string(e.Rule), want[0]) || !strings.Contains(err.Error(), want[1]) {
				t.Errorf("error %v, want %s with %q: %s", err, want[0], want[1], row["right_behaviour"])
			}
		})
	}
}

// The stored bytes of every tensor of every wild safetensors file are those
// that another reader found.
func TestWildStoredBytes(t *testing.T) {
	dir := wild(t)
	stores := map[string]*store.Store{}
	for row := range tsv(t, filepath.Join(dir, "expected_safetensors.tsv")) {
		st := stores[row["file"]]
		if st == nil {
			st = open(t, filepath.Join(dir, row["file"]), store.Config{})
			stores[row["file"]] = st
		}
		found := false
		for h := range st.StoredTensors() {
			if h.Name() != row["tensor"] {
				continue
			}
			found = true
			l, err := h.Raw(context.Background())
			if err != nil {
				t.Error(err)
				break
			}
			s := sha256.Sum256(l.Bytes())
			if got := hex.EncodeToString(s[:]); got != row["sha256_raw"] || l.DType().Safetensors() != row["dtype"] {
				t.Errorf("%s %s: %s %s, want %s %s", row["file"], h.Name(), l.DType(), got, row["dtype"], row["sha256_raw"])
			}
			l.Release()
		}
		if !found {
			t.Errorf("%s: no tensor %q", row["file"], row["tensor"])
		}
	}
}

// tsv yields the rows of a table by the names in its first line.
func tsv(t *testing.T, path string) func(yield func(map[string]string) bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(map[string]string) bool) {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		var head []string
		for lines.Scan() {
			fields := strings.Split(lines.Text(), "\t")
			if head == nil {
				head = fields
				continue
			}
			row := map[string]string{}
			for i, v := range fields[:min(len(fields), len(head))] {
				row[head[i]] = v
			}
			if !yield(row) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}
}
