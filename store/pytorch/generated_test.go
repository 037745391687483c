package pytorch

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/tensor"
)

// generated is what must become of the rows of wild/generated/manifest.tsv:
// the tensors in pickle order with their values, or the refusal.
var generated = map[string]string{
	"conj_neg_bits.pt":                      "z=c64[1 2 3 -4] z_conj!PT-004 x=f32[1 -2 0] x_neg!PT-004",
	"rebuild_v3_float8_uint16.pt":           "f8=f8_e4m3[56 64 184 126] u16=u16[1 2] w=f32[1 1]",
	"param_with_state_and_from_type.pt":     "p=f32[1 1] t=f32[2 2] w=f32[3 3]",
	"wrapper_subclass.pt":                   "sub!PT-004 w=f32[3 3]",
	"sparse_coo.pt":                         "coo!PT-004 dense=f32[1 1]",
	"sparse_csr.pt":                         "csr!PT-004 dense=f32[1 1]",
	"quantized_qtensor.pt":                  "q!PT-004 qc!PT-004 dense=f32[1 1]",
	"quantized_qtensor_legacy.pt":           "q!PT-004 dense=f32[1 1]",
	"full_module_zip.pt":                    "file PT-004 torch.nn.modules.container.Sequential",
	"full_module_legacy.pt":                 "file PT-004 torch.nn.modules.container.Sequential",
	"parameter.pt":                          "a=f32[1 1]",
	"numpy_scalars.pt":                      "w=f32[1 1]",
	"meta_tensor.pt":                        "m!PT-004 w=f32[1 1]",
	"bare_storage.pt":                       "",
	"bare_tensor.pt":                        "tensor=f32[1 1 1]",
	"tied_and_odd_keys.pt":                  "embed.weight=f32[0 1 2 3 4 5] lm_head.weight=f32[0 1 2 3 4 5] 0=f32[1] ('a',_1)=f32[2]",
	"deep_nesting_900.pt":                   "deep" + strings.Repeat(".0", 900) + "=f32[1] w=f32[1 1]",
	"bytes_payload.pt":                      "w=f32[1 1]",
	"c_ref.pt":                              cValues,
	"c_deflated.pt":                         cValues,
	"c_unaligned.pt":                        cValues,
	"c_zip64_local.pt":                      cValues,
	"c_prefix.pt":                           cValues,
	"c_comment.pt":                          cValues,
	"c_root_renamed.pt":                     cValues,
	"c_reordered.pt":                        cValues,
	"c_noroot.pt":                           cValues,
	"c_metadata_appended.pt":                cValues,
	"c_trunc_1.pt":                          "file PT-001 truncated",
	"c_trunc_half.pt":                       "file PT-001 truncated",
	"c_trunc_30.pt":                         "file PT-001 truncated",
	"c_legacy.pt":                           cValues,
	"c_legacy_trunc_5.pt":                   "file PT-001 truncated",
	"legacy_tar_true_layout.pt":             "w=f32[1 2 4 5] n=i64[1 2 3]",
	"bnb_nf4_dq_pytorch_model.bin":          "packed",
	"bnb_nf4_dq_unpacked_as_dict.bin":       "4bit nf4 64 bfloat16 nested 256 offset",
	"bnb_baichuan2_list_quant_state.bin":    "4bit nf4 64 float16 nested 256 tensor",
	"int8_weight_format_str_row.bin":        "int8 row",
	"int8_weight_format_str_col_turing.bin": "int8 col_turing",
}

const cValues = "a=f32[0 1 2 3 4] b=f64[0 1 2] c=i8[1 2 3]"

func TestGenerated(t *testing.T) {
	dir := filepath.Join(wildDir(t), "generated")
	table := rows(t, filepath.Join(dir, "manifest.tsv"))
	if len(table) != len(generated) {
		t.Errorf("%d rows, %d expectations", len(table), len(generated))
	}
	for _, row := range table {
		t.Run(row[0], func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(dir, row[0]))
			if err != nil {
				t.Fatal(err)
			}
			f, err := readBounded(t, b)
			want := generated[row[0]]
			if strings.HasPrefix(want, "file ") {
				testHostile(t, f, err, want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := show(t, f, b)
			if strings.HasPrefix(row[0], "bnb_") || strings.HasPrefix(row[0], "int8_") {
				got = showState(f)
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// show prints names, dtypes and values of the tensors, or the rules that refuse
// them.
func show(t *testing.T, f *File, file []byte) string {
	var parts []string
	for i, ts := range f.Tensors {
		name := strings.ReplaceAll(ts.Name, " ", "_")
		if ts.Err != nil {
			parts = append(parts, name+"!"+string(ts.Err.Rule))
			continue
		}
		b := gather(t, f, file, i)
		var vals []string
		for w := componentSize(ts.DType); len(b) > 0; b = b[w:] {
			vals = append(vals, component(ts.DType, b[:w]))
		}
		parts = append(parts, name+"="+ts.DType.String()+"["+strings.Join(vals, " ")+"]")
	}
	return strings.Join(parts, " ")
}

func componentSize(d tensor.DType) int { return d.WordSize() }

func component(d tensor.DType, b []byte) string {
	var u [8]byte
	copy(u[:], b)
	bits := le.Uint64(u[:])
	switch d {
	case tensor.F32, tensor.C64:
		return reprNumber(float64(math.Float32frombits(uint32(bits))))
	case tensor.F64:
		return reprNumber(math.Float64frombits(bits))
	}
	return reprNumber(float64(bits))
}

func reprNumber(f float64) string { return strings.TrimSuffix(reprFloat(f), ".0") }

// showState prints what the file's only quantized tensor is said to be.
func showState(f *File) string {
	if len(f.Quantized) == 0 {
		return "packed"
	}
	q := f.Quantized[0]
	var p []string
	p = append(p, q.Scheme)
	if q.Scheme == SchemeInt8 {
		if q.SCB != 1 || !slices.Equal(q.Companions, []int{1}) {
			p = append(p, "no SCB")
		}
		return strings.Join(append(p, q.WeightFormat), " ")
	}
	p = append(p, q.QuantType, reprNumber(float64(q.BlockSize)), q.DType)
	if q.Nested {
		p = append(p, "nested", reprNumber(float64(q.NestedBlockSize)))
	}
	if q.HasOffset {
		p = append(p, "offset")
	}
	if q.OffsetTensor >= 0 {
		p = append(p, "tensor")
	}
	if q.Err != nil {
		p = append(p, q.Err.Error())
	}
	return strings.Join(p, " ")
}
