package pytorch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/tensor"
)

type goldenTensor struct {
	Name            string
	Kind            string
	Nested          bool
	Shape           tensor.Shape
	RestoredDType   string `json:"restored_dtype"`
	BlockSize       int64
	NestedBlockSize int64 `json:"nested_blocksize"`
	SHA256          map[string]string
	Path            []any
	Stride          []int64
	StorageOffset   int64    `json:"storage_offset"`
	Contiguous      *bool    `json:"contiguous"`
	Shares          []string `json:"shares_storage_with"`
	StatePath       []any    `json:"state_path"`
	StatePrefix     string   `json:"state_prefix"`
}

type manifest struct {
	Cases []struct {
		Path, Container string
		Tensors         []goldenTensor
	}
	Hostile []struct{ Path, Level, Expect, Executes string }
}

func readManifest(t testing.TB) *manifest {
	b, err := os.ReadFile(filepath.Join(goldenDir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := new(manifest)
	if err := json.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// name is the tensor's name by the rule: its path with dots.
func (g *goldenTensor) name() string {
	if g.Path == nil { // cases that say nothing else are flat
		return g.Name
	}
	var parts []string
	for _, p := range g.Path {
		parts = append(parts, fmt.Sprint(p))
	}
	if len(parts) == 0 {
		return "tensor"
	}
	return strings.Join(parts, ".")
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func TestGolden(t *testing.T) {
	for _, c := range readManifest(t).Cases {
		if c.Container != "pt" {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			f, file := mustRead(t, filepath.Join(goldenDir, c.Path))
			hidden := make(map[int]bool)
			for _, q := range f.Quantized {
				if q.Err != nil {
					t.Errorf("%q: %v", q.Name, q.Err)
				}
				for _, i := range q.Companions {
					hidden[i] = true
				}
			}
			for i := range c.Tensors {
				g := &c.Tensors[i]
				j := find(t, f, g.name())
				if hidden[j] {
					t.Errorf("%q is a companion", g.name())
				}
				testGoldenTensor(t, f, file, j, g)
			}
			if len(f.Opaque) > 0 && !strings.Contains(c.Path, "checkpoint") {
				t.Errorf("opaque values %v", f.Opaque)
			}
		})
	}
}

func testGoldenTensor(t *testing.T, f *File, file []byte, i int, g *goldenTensor) {
	t.Helper()
	ts := f.Tensors[i]
	if g.Kind != "plain" {
		if g.StatePath != nil || g.StatePrefix != "" {
			testGoldenState(t, f, file, i, g)
		}
		return
	}
	if ts.DType.Torch() != g.RestoredDType || !slices.Equal(ts.Shape, g.Shape) {
		t.Errorf("%q: %s %v, want %s %v", ts.Name, ts.DType.Torch(), ts.Shape, g.RestoredDType, g.Shape)
	}
	if g.Stride != nil && (!slices.Equal(ts.Strides, g.Stride) || ts.Start != g.StorageOffset) {
		t.Errorf("%q: strides %v from %d, want %v from %d", ts.Name, ts.Strides, ts.Start, g.Stride, g.StorageOffset)
	}
	if g.Contiguous != nil && ts.Contiguous != *g.Contiguous {
		t.Errorf("%q: contiguous %v", ts.Name, ts.Contiguous)
	}
	for _, other := range g.Shares {
		if o := f.Tensors[find(t, f, other)]; o.Storage != ts.Storage {
			t.Errorf("%q and %q have two storages", ts.Name, other)
		}
	}
	if got := sum(gather(t, f, file, i)); got != g.SHA256["restored"] {
		t.Errorf("%q: sha256 %s, want %s", ts.Name, got, g.SHA256["restored"])
	}
}

// testGoldenState checks the fields of the state and, with a decoder that is
// nothing but the formulas, that the indices lead to the right tensors.
func testGoldenState(t *testing.T, f *File, file []byte, i int, g *goldenTensor) {
	t.Helper()
	k := slices.IndexFunc(f.Quantized, func(q Quantized) bool { return q.Packed == i })
	if k < 0 {
		t.Errorf("%q is not quantized", g.name())
		return
	}
	q := f.Quantized[k]
	scheme, quantType := Scheme4Bit, g.Kind
	if g.Kind == "blockwise8" {
		scheme, quantType = SchemeBlockwise8, ""
	}
	if q.Scheme != scheme || q.QuantType != quantType || q.BlockSize != g.BlockSize || q.DType != g.RestoredDType || q.Nested != g.Nested {
		t.Errorf("%q: %+v, want %+v", q.Name, q, g)
	}
	if g.Nested && q.NestedBlockSize != g.NestedBlockSize {
		t.Errorf("%q: nested blocksize %d, want %d", q.Name, q.NestedBlockSize, g.NestedBlockSize)
	}
	if scheme == Scheme4Bit && (!q.HasShape || !slices.Equal(q.Shape, g.Shape)) {
		t.Errorf("%q: shape %v, want %v", q.Name, q.Shape, g.Shape)
	}
	if got := sum(decode(t, f, file, &q, g)); got != g.SHA256["f32"] {
		t.Errorf("%q: sha256 of the float32 values %s, want %s", q.Name, got, g.SHA256["f32"])
	}
}
