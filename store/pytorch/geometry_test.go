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

// long70 is the integer 2**70.
const long70 = "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40"

// TestBrokenTensor puts tensors whose arguments make no tensor beside a sound
// one. The pickle is sound, so that only they are in error.
func TestBrokenTensor(t *testing.T) {
	v2 := func(offset, size, stride any) *writer {
		w := new(writer)
		w.op("ctorch._utils\n_rebuild_tensor_v2\n", '(').storage("FloatStorage", "0", 2)
		return w.op(offset, size, byte(0x85), stride, byte(0x85), byte(0x89), '}', "tR")
	}
	storage := func(numel any) *writer {
		w := new(writer)
		w.op("ctorch._utils\n_rebuild_tensor\n((").str("storage").op("ctorch\nFloatStorage\n").str("0").str("cpu").op(numel, "tQ")
		return w.op(0, 2, byte(0x85), 1, byte(0x85), "tR")
	}
	call := func(name, args string) *writer { return new(writer).op("ctorch._utils\n", name, "\n(", args, "tR") }
	sizes := func(n int) string { return "(" + strings.Repeat("K\x01", n) + "t" }
	for _, c := range []struct {
		name string
		w    *writer
		want string
	}{
		{"size of 2**70", v2(0, long70, 1), "w PT-005 size of 71 bits"},
		{"stride of 2**70", v2(0, 2, long70), "w PT-005 size of 71 bits"},
		{"storage offset of 2**70", v2(long70, 2, 1), "w PT-005 storage offset of 71 bits"},
		{"storage size of 2**70", storage(long70), "w PT-005 storage size of 71 bits"},
		{"size of a string", v2(0, "U\x012", 1), "w PT-002 str as a size"},
		{"size of a float", v2(0, "F2\n", 1), "w PT-002 float as a size"},
		{"size of a bool", v2(0, "\x88", 1), "w PT-002 bool as a size"},
		{"stride of a string", v2(0, 2, "U\x011"), "w PT-002 str as a size"},
		{"storage offset of None", v2("N", 2, 1), "w PT-002 None as a storage offset"},
		{"storage size of a string", storage("U\x012"), "w PT-002 str as a storage size"},
		{"no sizes", call("_rebuild_meta_tensor_no_storage", "ctorch\nfloat32\nK\x01)"), "w PT-002 int as a size"},
		{"65 dimensions", call("_rebuild_meta_tensor_no_storage", "ctorch\nfloat32\n"+sizes(65)+sizes(65)), "w PT-006 65 dimensions"},
		{"sizes of a wrapper subclass", call("_rebuild_wrapper_subclass", "NNU\x01a)"), "w PT-002 str as a size"},
		{"tensor of 3 arguments", call("_rebuild_tensor", "NK\x00)"), "w PT-002 3 arguments"},
		{"tensor of 5 arguments", call("_rebuild_tensor_v2", "NK\x00))\x89"), "w PT-002 5 arguments"},
		{"tensor of no arguments", call("_rebuild_tensor_v2", ""), "w PT-002 0 arguments"},
		{"tensor of 6 arguments", call("_rebuild_tensor_v3", "NK\x00))\x89}"), "w PT-002 6 arguments"},
		{"meta tensor of 2 arguments", call("_rebuild_meta_tensor_no_storage", "N)"), "w PT-002 2 arguments"},
		{"wrapper subclass of 3 arguments", call("_rebuild_wrapper_subclass", "NN)"), "w PT-002 3 arguments"},
		{"qtensor of 1 argument", call("_rebuild_qtensor", "N"), "w PT-004 qtensor"},
		{"parameter of a string", call("_rebuild_parameter", "U\x01q\x89}"), "w PT-002 a parameter of str"},
		{"parameter of nothing", call("_rebuild_parameter", ""), "w PT-002 without data"},
		{"parameter with state of 3 arguments", call("_rebuild_parameter_with_state", "N\x89}"), "w PT-002 3 arguments"},
		{"parameter with state of None", call("_rebuild_parameter_with_state", "N\x89})"), "w PT-002 a parameter of None"},
		{"type of 3 arguments", call("_rebuild_from_type_v2", "NN)"), "w PT-002 3 arguments"},
		{"type of no tuple", call("_rebuild_from_type_v2", "ctorch._utils\n_rebuild_tensor\nN]N"), "w PT-002 list as arguments"},
		{"type of no function", call("_rebuild_from_type_v2", "NN)N"), "w PT-002 _rebuild_from_type of None"},
		{"type of itself", call("_rebuild_from_type_v2", "ctorch._tensor\n_rebuild_from_type_v2\nN)N"), "w PT-002 _rebuild_from_type of torch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := new(writer).op('}', '(').str("v").tensor("0", 2).str("w")
			w.Write(c.w.Bytes())
			w.str("x").tensor("0", 1).op('u', '.')
			file := zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", float32s(1, 2))
			f, err := readBounded(t, file)
			testHostile(t, f, err, c.want)
			id := strings.Fields(c.want)[1]
			if got, want := show(t, f, file), "v=f32[1 2] w!"+id+" x=f32[1]"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if at := f.Tensors[1].Err.Offset; id != "PT-004" && (at <= 0 || at >= int64(len(file))) {
				t.Errorf("error at byte %d of %d", at, len(file))
			}
		})
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
