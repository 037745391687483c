package pytorch

import (
	"math"
	"strings"
	"testing"

	"nibble/tensor"
)

func TestGeometry(t *testing.T) {
	const big = math.MaxInt64
	for _, c := range []struct {
		shape   tensor.Shape
		strides []int64
		start   int64
		n       int64  // elements in the storage
		want    string // of the error, "" for none
	}{
		{tensor.Shape{}, nil, 0, 1, ""},
		{tensor.Shape{}, nil, 0, 0, "element 0 of a storage of 0"},
		{tensor.Shape{}, nil, 1, 1, "element 1"},
		{tensor.Shape{2, 3}, []int64{3, 1}, 0, 6, ""},
		{tensor.Shape{2, 3}, []int64{3, 1}, 1, 6, "element 6"},
		{tensor.Shape{2, 3}, []int64{1, 2}, 0, 6, ""},
		{tensor.Shape{2, 3}, []int64{4, 1}, 0, 6, "element 6"},
		{tensor.Shape{big, 1}, []int64{0, 0}, 0, 1, ""},
		{tensor.Shape{big, 2}, []int64{0, 0}, 0, 1, "overflows"},
		{tensor.Shape{2, 2}, []int64{big, 1}, 0, 6, "overflow"},
		{tensor.Shape{3}, []int64{big}, 0, 6, "overflow"},
		{tensor.Shape{1}, []int64{big}, 0, 1, ""},
		{tensor.Shape{2}, []int64{1}, big, big, "overflow"},
		{tensor.Shape{2}, []int64{-1}, 1, 6, "negative stride"},
		{tensor.Shape{0}, []int64{-1}, 0, 6, "negative stride"},
		{tensor.Shape{-1}, []int64{1}, 0, 6, "negative"},
		{tensor.Shape{1}, []int64{1}, -1, 6, "negative storage offset"},
		{tensor.Shape{0, 5}, []int64{5, 1}, 6, 6, ""},
		{tensor.Shape{0}, []int64{1}, 7, 6, "empty view at element 7"},
		{tensor.Shape{0}, []int64{big}, 0, 0, ""},
		{tensor.Shape{1, 1}, []int64{1}, 0, 6, "2 dimensions with 1 strides"},
	} {
		v := &tensorValue{shape: c.shape, strides: c.strides}
		err := v.check(c.start, c.n)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v strides %v from %d of %d: error %v, want %q", c.shape, c.strides, c.start, c.n, err, c.want)
		}
	}
}

func TestContiguous(t *testing.T) {
	for _, c := range []struct {
		shape   tensor.Shape
		strides []int64
		want    bool
	}{
		{tensor.Shape{}, nil, true},
		{tensor.Shape{3}, []int64{1}, true},
		{tensor.Shape{3}, []int64{2}, false},
		{tensor.Shape{2, 3}, []int64{3, 1}, true},
		{tensor.Shape{2, 3}, []int64{1, 2}, false},
		{tensor.Shape{2, 1, 3}, []int64{3, 99, 1}, true},
		{tensor.Shape{1}, []int64{0}, true},
		{tensor.Shape{2}, []int64{0}, false},
		{tensor.Shape{2, 0}, []int64{7, 7}, true},
		{tensor.Shape{0, 2}, []int64{7, 7}, true},
	} {
		v := &tensorValue{shape: c.shape, strides: c.strides}
		if got := v.contiguous(); got != c.want {
			t.Errorf("%v strides %v: %v", c.shape, c.strides, got)
		}
	}
}

// TestUntyped views one untyped storage as several dtypes, as
// _rebuild_tensor_v3 does: its size is in bytes.
func TestUntyped(t *testing.T) {
	w := new(writer)
	w.op('(')
	for _, v := range []struct {
		dtype     string
		offset, n int
	}{{"uint16", 1, 3}, {"uint16", 1, 4}, {"float32", 0, 2}, {"int32", 1, 1}, {"complex128", 0, 1}, {"uint4", 0, 1}} {
		w.op("ctorch._utils\n_rebuild_tensor_v3\n(").storage("torch.storage\nUntypedStorage", "0", 8)
		w.op(v.offset, v.n, byte(0x85), 1, byte(0x85), byte(0x89), '}', "ctorch\n"+v.dtype+"\n", "tR")
	}
	w.op('t', '.')
	file := zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", float32s(1, 1)) // 1.0 is 0x3f800000
	f, err := readBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, int64(len(file)))
	const want = "0=u16[16256 0 16256] 1!PT-005 2=f32[1 1] 3=i32[1065353216] 4!PT-005 5!PT-004"
	if got := show(t, f, file); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestQTensor protects against the integers of torch's own quantization, over
// whatever storage, being taken for values.
func TestQTensor(t *testing.T) {
	for _, class := range []string{"QInt8Storage", "ByteStorage"} {
		w := new(writer)
		w.op("ctorch._utils\n_rebuild_qtensor\n(").storage(class, "0", 4)
		w.op(0, 4, byte(0x85), 1, byte(0x85), 'N', byte(0x89), '}', "tR", '.')
		f, err := readBytes(zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", "abcd"))
		testHostile(t, f, err, "tensor PT-004 qtensor")
		if ts := f.Tensors[0]; ts.DType != tensor.Stored || ts.Kind != "qtensor" {
			t.Errorf("%+v", ts)
		}
	}
}
