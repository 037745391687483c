package quant

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"testing"

	"nibble/tensor"
)

// torchRecords are the storages of a torch file, by number, and its pickle.
func torchRecords(t *testing.T, name string) (records map[string][]byte) {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join(golden, name))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	records = map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if records[path.Base(f.Name)], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	return records
}

// offsets are the floats in a pickle that nothing but a nested offset can be.
func offsets(pickle []byte) (found []float64) {
	for i, op := range pickle[:len(pickle)-8] {
		if op == 'G' { // BINFLOAT
			if f := math.Float64frombits(binary.BigEndian.Uint64(pickle[i+1:])); f > 1e-4 && f < 1 {
				found = append(found, f)
			}
		}
	}
	return found
}

// The tensors of bw8/nested_dict.pt, in order. Each stores its codes, absmax,
// map and, when nested, the nested absmax and map, in this order too, and has
// nested blocks of its own blocksize.
var goldenBlockwise = []struct {
	name      string
	blockSize int64
	nested    bool
}{
	{"b4096", 4096, false}, {"b4096_exact", 4096, false}, {"b256", 256, false}, {"b64", 64, false}, {"short", 4096, false},
	{"nested4096", 4096, true}, {"nested64", 64, true}, {"unsigned", 256, false}, {"unsigned_nested", 64, true}, {"zero_block", 64, false},
}

// Blockwise tensors that bitsandbytes saved must decode to the values that it
// gives, in each dtype.
func TestGoldenBlockwise(t *testing.T) {
	sums := map[string]map[string]string{}
	for _, c := range readManifest(t).Cases {
		if c.Path == "bw8/nested_dict.pt" {
			for _, w := range c.Tensors {
				sums[w.Name] = w.SHA256
			}
		}
	}
	forEachKernel(t, func(t *testing.T) {
		records := torchRecords(t, "bw8/nested_dict.pt")
		nestedOffsets := offsets(records["data.pkl"])
		next := 0
		for _, c := range goldenBlockwise {
			parts := make([][]byte, 3, 5)
			if c.nested {
				parts = parts[:5]
			}
			for p := range parts {
				parts[p] = records[fmt.Sprint(next)]
				next++
			}
			st := &State{BlockSize: c.blockSize, DType: tensor.F32}
			if c.nested {
				st.Nested = &Nested{c.blockSize, tensor.F32, nestedOffsets[0]}
				nestedOffsets = nestedOffsets[1:]
			}
			d := newGoldenBlockwise(t, st, parts)
			for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
				if got, want := digest(decodeAll(d, dt, parts), dt, false), sums[c.name][dt.String()]; got != want {
					t.Errorf("%s as %v: sha256 %s; want %s", c.name, dt, got, want)
				}
			}
		}
	})
}

func newGoldenBlockwise(t *testing.T, st *State, parts [][]byte) Decoder {
	t.Helper()
	n := int64(len(parts[0]))
	p := BlockwiseParts{
		Codes:    Stored{DType: tensor.U8, Shape: tensor.Shape{n}, Bytes: n},
		Absmax:   vector(tensor.F32, int64(len(parts[1]))/4),
		QuantMap: vector(tensor.F32, int64(len(parts[2]))/4),
	}
	if len(parts) == 5 {
		p.Absmax = vector(tensor.U8, int64(len(parts[1])))
		p.NestedAbsmax, p.NestedMap = vector(tensor.F32, int64(len(parts[3]))/4), vector(tensor.F32, 256)
	}
	d, err := NewBlockwise(st, p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The whole of one nested tensor, value by value.
func TestGoldenBlockwiseValues(t *testing.T) {
	records := torchRecords(t, "bw8/single.pt")
	var parts [][]byte
	for i := range 5 {
		parts = append(parts, records[fmt.Sprint(i)])
	}
	st := &State{BlockSize: 4096, DType: tensor.F32, Nested: &Nested{4096, tensor.F32, offsets(records["data.pkl"])[0]}}
	want, err := os.ReadFile(filepath.Join(golden, "bw8/single.pt.expected.f32"))
	if err != nil {
		t.Fatal(err)
	}
	forEachKernel(t, func(t *testing.T) {
		got := decodeAll(newGoldenBlockwise(t, st, parts), tensor.F32, parts)
		tensor.LittleEndian(got, got, 4)
		if !bytes.Equal(got, want) {
			t.Error("values differ from bitsandbytes'")
		}
	})
}
