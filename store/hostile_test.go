package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/store"
	"nibble/tensor"
)

// hostileRules gives the rule that each hostile file breaks, where the manifest
// does not say. The keys are paths below hostile/.
var hostileRules = map[string]string{
	"quant/nested_blocksize_str": "BNB-004", "quant/nested_blocksize_0": "BNB-004",
	"quant/absmax_short_plain": "BNB-102", "quant/absmax_long_plain": "BNB-102",
	"quant/absmax_short_nested": "BNB-102", "quant/absmax_long_nested": "BNB-102",
	"quant/absmax_empty": "BNB-102", "quant/packed_too_few": "BNB-102", "quant/packed_too_many": "BNB-102",
	"quant/quant_map_len_15": "BNB-102", "quant/nested_quant_map_missing": "BNB-004",
	"quant/nested_absmax_missing": "BNB-004", "quant/nested_quant_map_len": "BNB-004",
	"quant/nested_absmax_short": "BNB-004", "quant/nested_offset_nan": "BNB-004",
	"quant/nested_offset_inf": "BNB-004", "quant/nested_offset_missing": "BNB-004",
	"quant/json_not_utf8": "BNB-103", "quant/json_truncated": "BNB-103", "quant/json_array": "BNB-103",
	"quant/json_empty": "BNB-103", "quant/json_trailing": "BNB-103", "quant/shape_overflow": "BNB-104",
	"quant/shape_negative": "BNB-104", "quant/shape_smaller": "BNB-102", "quant/shape_null": "BNB-104",
	"quant/shape_string": "BNB-104", "quant/dtype_float8": "BNB-104", "quant/dtype_module": "BNB-104",
	"quant/two_quant_state_keys": "BNB-105", "quant/absmax_missing": "BNB-101",
	"quant/absmax_bf16_transposed": "BNB-102", "quant/int8_scb_short": "BNB-201",
	"quant/int8_weight_format_1": "BNB-202", "quant/int8_scb_cols": "BNB-201",

	"safetensors/header_len_gt_file": "ST-001", "safetensors/header_len_2_63": "ST-001",
	"safetensors/header_len_over_100mb": "ST-001", "safetensors/header_len_short": "ST-002",
	"safetensors/header_len_zero": "ST-001", "safetensors/overlap": "ST-006", "safetensors/hole": "ST-006",
	"safetensors/beyond_eof": "ST-007", "safetensors/begin_gt_end": "ST-006",
	"safetensors/duplicate_name": "ST-003", "safetensors/not_brace": "ST-002",
	"safetensors/size_mismatch": "ST-005", "safetensors/invalid_utf8_name": "ST-002",
	"safetensors/empty_file": "ST-008", "safetensors/seven_bytes": "ST-001",
	"safetensors/trailing_data": "ST-007", "safetensors/unknown_dtype": "ST-004",
	"safetensors/shape_overflow": "ST-005", "safetensors/negative_shape": "ST-005",
	"safetensors/negative_offset": "ST-006", "safetensors/truncated_data": "ST-007",
	"safetensors/float_offset": "ST-006", "safetensors/missing_dtype": "ST-002",
	"safetensors/metadata_not_strings": "ST-002", "safetensors/json_truncated": "ST-002",

	"pickle/qs_absmax_short.pt": "BNB-102", "pickle/list_state_bad.pt": "BNB-103",

	"index/missing_shard/model.safetensors.index.json":  "IDX-002",
	"index/wrong_shard/model.safetensors.index.json":    "IDX-003",
	"index/path_traversal/model.safetensors.index.json": "IDX-004",
	"index/not_json/model.safetensors.index.json":       "IDX-001",
}

// readAll opens path and acquires every tensor. It returns the first error, and
// the names that could be read.
func readAll(path string) (read []string, err error) {
	ctx := context.Background()
	st, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	for h := range st.Tensors() {
		l, e := h.Acquire(ctx, tensor.Stored)
		if e != nil {
			if err == nil {
				err = e
			}
			continue
		}
		l.Release()
		read = append(read, h.Name())
	}
	return read, err
}

// Every file that must be refused is, with the rule that it breaks, and leaves
// the tensors beside the broken one usable.
func TestHostile(t *testing.T) {
	for _, c := range readManifest().Hostile {
		if c.Expect != "reject" || !slices.Contains([]string{"quant", "safetensors", "index"}, c.Level) {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			read, err := readAll(filepath.Join(goldenDir, c.Path))
			var e *store.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is not a *store.Error", err)
			}
			want := c.Code
			if want == "" {
				key := strings.TrimSuffix(strings.TrimPrefix(c.Path, "hostile/"), ".safetensors")
				want = hostileRules[key]
			}
			if string(e.Rule) != want {
				t.Errorf("rule %s, want %s: %v", e.Rule, want, err)
			}
			if e.Path == "" || !strings.HasPrefix(e.Path, goldenDir) {
				t.Errorf("error without a path: %v", err)
			}
			if c.Level != "quant" {
				return
			}
			if c.Tensor != "" && e.Tensor != c.Tensor {
				t.Errorf("error names %q, want %q", e.Tensor, c.Tensor)
			}
			if slices.Contains(read, c.Tensor) {
				t.Errorf("%s was read", c.Tensor)
			}
		})
	}
}

// policies is what docs/policy.md says that we do where the reference tolerates what it should not: the
// rule with which we refuse, or "" where the result is that of the reference.
var policies = map[string]string{
	"hostile/quant/quant_type_disagrees.safetensors":      "BNB-105",
	"hostile/quant/quant_map_values.safetensors":          "",
	"hostile/quant/json_duplicate_keys.safetensors":       "BNB-103",
	"hostile/quant/absmax_f16.safetensors":                "",
	"hostile/safetensors/duplicate_name_same.safetensors": "ST-003",

	"hostile/pickle/geometry_size_overflow.pt": "PT-005",
	"hostile/pickle/zip_duplicate_entry.pt":    "PT-001",
	"hostile/pickle/zip_deflated_storage.pt":   "",
	"hostile/pickle/zip_deflated_pickle.pt":    "",
	"hostile/pickle/zip_bad_crc.pt":            "",
	"hostile/pickle/legacy_trailing.bin":       "",
}

func TestPolicy(t *testing.T) {
	for _, c := range readManifest().Hostile {
		if c.Expect != "policy" {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			want, ok := policies[c.Path]
			if !ok {
				t.Fatalf("no policy for %s: %s", c.Path, c.Policy)
			}
			_, err := readAll(filepath.Join(goldenDir, c.Path))
			if want != "" {
				var e *store.Error
				if !errors.As(err, &e) || string(e.Rule) != want {
					t.Errorf("error %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			st := open(t, filepath.Join(goldenDir, c.Path), store.Config{})
			if c.Tensor == "" { // the damaged copies of one torch file
				c.Tensor, c.Result.SHA256 = "w", sum(leF32(0, 1, 2, 3), tensor.U8, false)
			}
			h, err := st.Tensor(c.Tensor)
			if err != nil {
				t.Fatal(err)
			}
			l, err := h.Acquire(context.Background(), tensor.Stored)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			if got := sum(l.Bytes(), l.DType(), false); got != c.Result.SHA256 {
				t.Errorf("sha256 %s, want the reference's %s", got, c.Result.SHA256)
			}
		})
	}
}
