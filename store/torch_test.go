package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/store"
	"nibble/tensor"
)

// torchName is the name of a tensor by its path in the manifest: keys and
// indices joined with dots, and "tensor" for the root.
func torchName(t *testing.T, g goldenTensor) string {
	t.Helper()
	if g.Path == nil {
		return g.Name
	}
	var path []any
	if err := json.Unmarshal(g.Path, &path); err != nil {
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

// Every torch file gives the tensors and the bits of the reference, whatever
// way its quantization is described.
func TestGoldenTorch(t *testing.T) {
	for _, backend := range []string{"mmap", "pread"} {
		for _, c := range readManifest().Cases {
			if c.Container != "pt" {
				continue
			}
			t.Run(backend+"/"+c.Path, func(t *testing.T) {
				st := open(t, filepath.Join(goldenDir, c.Path), store.Config{Backend: backend, Workers: 2})
				var names, got []string
				for _, want := range c.Tensors {
					name := torchName(t, want)
					names = append(names, name)
					checkTensor(t, st, name, want, c.NaNCanonical)
				}
				for h := range st.Tensors() {
					got = append(got, h.Name())
				}
				for _, n := range got {
					if !slices.Contains(names, n) {
						t.Errorf("%q is listed and not in the manifest", n)
					}
				}
			})
		}
	}
}

// The values of other people's torch files are those that torch read from
// them.
func TestWildTorch(t *testing.T) {
	dir := wild(t)
	stores := map[string]*store.Store{}
	for row := range tsv(t, filepath.Join(dir, "expected_torch.tsv")) {
		if row["tensor"] == "ERROR" {
			continue
		}
		st := stores[row["file"]]
		if st == nil {
			st = open(t, filepath.Join(dir, row["file"]), store.Config{})
			stores[row["file"]] = st
		}
		name := row["tensor"]
		switch name {
		case "NO_TENSORS":
			if st.Len() != 0 {
				t.Errorf("%s has tensors", row["file"])
			}
			continue
		case "": // the root itself
			name = "tensor"
		}
		h, err := st.Tensor(name)
		if err != nil {
			t.Errorf("%s: %v", row["file"], err)
			continue
		}
		l, err := h.Raw(context.Background())
		if err != nil {
			t.Error(err)
			continue
		}
		s := sha256.Sum256(l.Bytes())
		if got := hex.EncodeToString(s[:]); got != row["sha256_contiguous_le"] || l.DType().Torch() != row["dtype"] {
			t.Errorf("%s %s: %s %s, want %s %s", row["file"], h.Name(), l.DType().Torch(), got, row["dtype"], row["sha256_contiguous_le"])
		}
		l.Release()
	}
}

// Re-zipped, deflated, prefixed and legacy copies of one dict have the same
// values, in every backend and with no room in the budget for what is
// inflated.
func TestWildContainers(t *testing.T) {
	dir := filepath.Join(wild(t), "generated")
	files, err := filepath.Glob(filepath.Join(dir, "c_*.pt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]float64{"a": {0, 1, 2, 3, 4}, "b": {0, 1, 2}, "c": {1, 2, 3}}
	for _, path := range files {
		for _, budget := range []int64{0, store.NoCache, 8} {
			t.Run(fmt.Sprintf("%s/budget=%d", filepath.Base(path), budget), func(t *testing.T) {
				st, err := store.Open(context.Background(), path, store.WithConfig(store.Config{CacheBudget: budget}))
				if strings.Contains(path, "trunc") {
					if err == nil {
						_, err = readAll(path)
						st.Close()
					}
					var e *store.Error
					if !errors.As(err, &e) || !strings.HasPrefix(string(e.Rule), "PT-") {
						t.Errorf("truncated file: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer st.Close()
				for name, values := range want {
					h, err := st.Tensor(name)
					if err != nil {
						t.Error(err)
						continue
					}
					l, err := h.Acquire(context.Background(), tensor.Stored)
					if err != nil {
						t.Error(err)
						continue
					}
					if got := floats(l); !slices.Equal(got, values) {
						t.Errorf("%s = %v, want %v", name, got, values)
					}
					l.Release()
				}
			})
		}
	}
}

func floats(l store.Lease) []float64 {
	var out []float64
	for _, v := range store.Elements[float32](l) {
		out = append(out, float64(v))
	}
	out = append(out, store.Elements[float64](l)...)
	for _, v := range store.Elements[int8](l) {
		out = append(out, float64(v))
	}
	return out
}

// wildGenerated is what each file with unusual contents gives: values by name,
// or the rule of the refusal, of the tensor or (as "") of the file.
var wildGenerated = map[string]map[string]any{
	"conj_neg_bits.pt":                  {"z_conj": "PT-004", "x_neg": "PT-004"},
	"rebuild_v3_float8_uint16.pt":       {"f8": []float64{1, 2, -1, 448}, "u16": []float64{1, 2}},
	"param_with_state_and_from_type.pt": {"w": []float64{3, 3}},
	"wrapper_subclass.pt":               {"sub": "PT-004"},
	"sparse_coo.pt":                     {"coo": "PT-004"},
	"sparse_csr.pt":                     {"csr": "PT-004"},
	"quantized_qtensor.pt":              {"q": "PT-004"},
	"quantized_qtensor_legacy.pt":       {"q": "PT-004"},
	"full_module_zip.pt":                {"": "PT-004"},
	"full_module_legacy.pt":             {"": "PT-004"},
	"meta_tensor.pt":                    {"m": "PT-004"},
}

func TestWildGenerated(t *testing.T) {
	dir := filepath.Join(wild(t), "generated")
	for file, want := range wildGenerated {
		t.Run(file, func(t *testing.T) {
			st, err := store.Open(context.Background(), filepath.Join(dir, file))
			if rule, refused := want[""]; refused {
				var e *store.Error
				if !errors.As(err, &e) || string(e.Rule) != rule {
					t.Errorf("Open: %v, want %s", err, rule)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			for name, v := range want {
				h, err := st.Tensor(name)
				if err != nil {
					t.Error(err)
					continue
				}
				l, err := h.Acquire(context.Background(), tensor.Stored)
				if rule, refused := v.(string); refused {
					var e *store.Error
					if !errors.As(err, &e) || string(e.Rule) != rule {
						t.Errorf("%s: %v, want %s", name, err, rule)
					}
					if _, err := h.Raw(context.Background()); err == nil {
						t.Errorf("%s: raw bytes of what has no values", name)
					}
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				little := make([]byte, len(l.Bytes()))
				tensor.LittleEndian(little, l.Bytes(), l.DType().WordSize())
				buf := make([]byte, len(little)/l.DType().Size()*4)
				if l.DType() == tensor.U16 {
					for i, u := range store.Elements[uint16](l) {
						if float64(u) != v.([]float64)[i] {
							t.Errorf("%s = %v", name, store.Elements[uint16](l))
						}
					}
				} else if tensor.Convert(buf, tensor.F32, little, l.DType()); !slices.Equal(f32s(buf), v.([]float64)) {
					t.Errorf("%s = %v, want %v", name, f32s(buf), v)
				}
				l.Release()
			}
			for h := range st.Tensors() {
				if _, broken := want[h.Name()]; broken {
					continue
				}
				if err := release(h.Acquire(context.Background(), tensor.Stored)); err != nil && !errors.Is(err, store.ErrUnsupported) {
					t.Errorf("neighbour: %v", err)
				}
			}
		})
	}
}

func f32s(host []byte) []float64 {
	le := make([]byte, len(host))
	tensor.LittleEndian(le, host, 4)
	var out []float64
	for i := 0; i < len(le); i += 4 {
		u := uint32(le[i]) | uint32(le[i+1])<<8 | uint32(le[i+2])<<16 | uint32(le[i+3])<<24
		out = append(out, float64(math.Float32frombits(u)))
	}
	return out
}

// bitsandbytes' weights in torch files of other people decode as they do in
// safetensors.
func TestWildTorchBnb(t *testing.T) {
	dir := wild(t)
	for file, want := range map[string]string{
		"generated/bnb_nf4_dq_pytorch_model.bin":    "llama_1b_nf4_double_quant",
		"generated/bnb_nf4_dq_unpacked_as_dict.bin": "llama_1b_nf4_double_quant",
		"generated/int8_weight_format_str_row.bin":  "llama_1b_int8",
	} {
		t.Run(file, func(t *testing.T) {
			expected, err := os.ReadFile(filepath.Join(dir, "bnb", want+".expected_bf16.bin"))
			if err != nil {
				t.Fatal(err)
			}
			st := open(t, filepath.Join(dir, file), store.Config{})
			quantized := 0
			for h := range st.Tensors() {
				info, err := h.Info(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if info.Scheme == store.SchemePlain {
					continue
				}
				quantized++
				l, err := h.Acquire(context.Background(), tensor.BF16)
				if err != nil {
					t.Fatal(err)
				}
				compareBF16(t, bytes.Clone(l.Bytes()), expected, false)
				l.Release()
			}
			if quantized != 1 {
				t.Errorf("%d quantized tensors, want one", quantized)
			}
		})
	}
	for file, rule := range map[string]string{"generated/int8_weight_format_str_col_turing.bin": "BNB-202"} {
		_, err := readAll(filepath.Join(dir, file))
		var e *store.Error
		if !errors.As(err, &e) || string(e.Rule) != rule || !strings.Contains(err.Error(), "col_turing") {
			t.Errorf("%s: %v, want %s", file, err, rule)
		}
	}
	if read, err := readAll(filepath.Join(dir, "generated/bnb_baichuan2_list_quant_state.bin")); err != nil || len(read) == 0 {
		t.Errorf("a list of 2023: read %v, %v", read, err)
	}
}

// The hostile pickles and archives are refused, or read without harm.
func TestHostileTorch(t *testing.T) {
	for _, c := range readManifest().Hostile {
		if c.Level != "pickle" && c.Level != "zip" {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			_, err := readAll(filepath.Join(goldenDir, c.Path))
			if c.Expect == "reject" {
				var e *store.Error
				if !errors.As(err, &e) || e.Rule == "" || e.Path == "" {
					t.Errorf("error %v, want a *store.Error with path and rule", err)
				}
			}
			if c.Executes != "" {
				if _, err := os.Stat(c.Executes); err == nil {
					t.Errorf("%s exists: the file was executed", c.Executes)
				}
			}
		})
	}
}
