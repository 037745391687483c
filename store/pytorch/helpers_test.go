package pytorch

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/tensor"
)

const goldenDir = "../../testdata/golden"

// wildDir returns the folder of files from the wild, and skips the test where
// there is none.
func wildDir(t testing.TB) string {
	dir := os.Getenv("NIBBLE_WILD")
	if dir == "" {
		dir = "../../../shared/wild"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no files from the wild: %v", err)
	}
	return dir
}

func readBytes(b []byte) (*File, error) {
	return Read(bytes.NewReader(b), int64(len(b)), Limits{})
}

func mustRead(t testing.TB, path string) (*File, []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := readBytes(b)
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
	check(t, f, int64(len(b)))
	return f, b
}

// check verifies what File promises whatever the file: indices that exist,
// ranges inside the file, views inside their storages, unique names.
func check(t testing.TB, f *File, size int64) {
	t.Helper()
	for _, s := range f.Storages {
		n := s.Bytes
		if s.Deflated {
			n = s.Compressed
		}
		if s.Offset < 0 || n < 0 || n > size-s.Offset {
			t.Fatalf("storage %q at %d, %d bytes, in a file of %d", s.Key, s.Offset, n, size)
		}
	}
	names := make(map[string]bool)
	for i, ts := range f.Tensors {
		if names[ts.Name] {
			t.Fatalf("name %q twice", ts.Name)
		}
		names[ts.Name] = true
		if ts.Err != nil {
			if ts.Storage != -1 || ts.Err.Tensor != ts.Name || ts.Err.Rule == "" {
				t.Fatalf("tensor %q: bad refusal %+v", ts.Name, ts)
			}
			continue
		}
		if ts.DType == tensor.Stored || len(ts.Shape) != len(ts.Strides) {
			t.Fatalf("tensor %d %+v", i, ts)
		}
		numel, ok := ts.Shape.Numel()
		if !ok || ts.Start < 0 {
			t.Fatalf("tensor %q of shape %v from %d", ts.Name, ts.Shape, ts.Start)
		}
		last := ts.Start
		for d, n := range ts.Shape {
			last += (n - 1) * ts.Strides[d]
		}
		if numel > 0 && last >= f.Storages[ts.Storage].Bytes/int64(ts.DType.Size()) {
			t.Fatalf("tensor %q leaves its storage", ts.Name)
		}
	}
	last := -1
	for _, q := range f.Quantized {
		if q.Packed <= last || !slices.IsSorted(q.Companions) {
			t.Fatalf("quantized %q out of order: %+v", q.Name, q)
		}
		last = q.Packed
		if q.Name != f.Tensors[q.Packed].Name {
			t.Fatalf("quantized %q is tensor %q", q.Name, f.Tensors[q.Packed].Name)
		}
		for _, i := range append(q.Companions, q.Absmax, q.QuantMap, q.NestedAbsmax, q.NestedMap, q.OffsetTensor, q.SCB, q.JSON) {
			if i < -1 || i >= len(f.Tensors) {
				t.Fatalf("quantized %q: index %d", q.Name, i)
			}
		}
		if slices.Contains(q.Companions, q.Packed) {
			t.Fatalf("quantized %q is its own companion", q.Name)
		}
	}
}

// find returns the index of the tensor called name.
func find(t testing.TB, f *File, name string) int {
	t.Helper()
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return i
		}
	}
	t.Fatalf("no tensor %q", name)
	return -1
}

// gather copies the elements of tensor i, one by one, in row-major order and
// little-endian.
func gather(t testing.TB, f *File, file []byte, i int) []byte {
	t.Helper()
	ts := f.Tensors[i]
	if ts.Err != nil {
		t.Fatalf("tensor %q: %v", ts.Name, ts.Err)
	}
	s := f.Storages[ts.Storage]
	data := make([]byte, s.Bytes)
	if s.Deflated {
		if err := s.Inflate(bytes.NewReader(file), data); err != nil {
			t.Fatal(err)
		}
	} else {
		copy(data, file[s.Offset:])
	}
	elem := int64(ts.DType.Size())
	numel, _ := ts.Shape.Numel()
	out := make([]byte, 0, numel*elem)
	index := make([]int64, len(ts.Shape))
	for n := range numel {
		at := ts.Start
		for d, x := range index {
			at += x * ts.Strides[d]
		}
		if ts.Contiguous && at != ts.Start+n {
			t.Fatalf("tensor %q is not contiguous", ts.Name)
		}
		out = append(out, data[at*elem:(at+1)*elem]...)
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < ts.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	if s.BigEndian {
		w := ts.DType.WordSize()
		for at := 0; at < len(out); at += w {
			slices.Reverse(out[at : at+w])
		}
	}
	return out
}

// writer builds pickles by hand.
type writer struct{ bytes.Buffer }

func (w *writer) op(ops ...any) *writer {
	for _, o := range ops {
		switch o := o.(type) {
		case byte:
			w.WriteByte(o)
		case rune:
			w.WriteByte(byte(o))
		case string:
			w.WriteString(o)
		case int:
			w.WriteByte('J')
			w.Write(binary.LittleEndian.AppendUint32(nil, uint32(int32(o))))
		}
	}
	return w
}

func (w *writer) str(s string) *writer {
	w.WriteByte('X')
	w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	w.WriteString(s)
	return w
}

// storage pushes a persistent id. The class is in module torch unless it says
// otherwise, as the two lines of GLOBAL.
func (w *writer) storage(class, key string, numel int) *writer {
	if !strings.Contains(class, "\n") {
		class = "torch\n" + class
	}
	w.op('(').str("storage").op("c" + class + "\n").str(key).str("cpu")
	return w.op(numel, 't', 'Q')
}

// tensor pushes a contiguous vector over a float storage.
func (w *writer) tensor(key string, numel int) *writer {
	w.op("ctorch._utils\n_rebuild_tensor_v2\n", '(').storage("FloatStorage", key, numel)
	return w.op(0, numel, byte(0x85), 1, byte(0x85), byte(0x89), '}', 't', 'R')
}
