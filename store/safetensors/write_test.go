package safetensors

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

// otherwise are the files of the vectors that are not as the Rust crate would
// write them, on purpose.
var otherwise = map[string]bool{
	"st4/unaligned_name_order.safetensors": true,
	"st4/no_metadata_nopad.safetensors":    true,
	"st4/header_shuffled.safetensors":      true,
}

// TestEncodeGolden writes the header of every vector anew. The crate accepted
// and reproduced these bytes, so they are what Encode must write.
func TestEncodeGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden, "*", "*.safetensors"))
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	for _, path := range files {
		rel, _ := filepath.Rel(golden, path)
		file := readFile(t, path)
		h, err := read(file)
		if err != nil {
			t.Fatal(path, err)
		}
		l, err := Encode(mixed(h.Tensors), h.Metadata)
		if err != nil {
			t.Fatal(path, err)
		}
		if !otherwise[filepath.ToSlash(rel)] && !bytes.Equal(l.Header, file[:h.DataStart]) {
			t.Errorf("%s: got\n%.600s\nwant\n%.600s", path, l.Header, file[:h.DataStart])
		}
		roundTrip(t, l, h.Metadata)
	}
}

// mixed returns the tensors in another order and without their offsets.
func mixed(tensors []Tensor) []Tensor {
	list := slices.Clone(tensors)
	slices.Reverse(list)
	for i := range list {
		list[i].Begin, list[i].End = -1, -1
	}
	return list
}

// roundTrip reads a layout back.
func roundTrip(t *testing.T, l *Layout, metadata map[string]string) {
	t.Helper()
	h, err := Parse(l.Header[8:], int64(len(l.Header)), l.Size)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(h.Tensors, l.Tensors, same) || !maps.Equal(h.Metadata, metadata) || (h.Metadata == nil) != (metadata == nil) {
		t.Errorf("got %+v\nwant %+v", h, l)
	}
	if len(l.Header)%8 != 0 {
		t.Errorf("data at %d", len(l.Header))
	}
}

// TestEncodeOrder pins the order of dtypes to that of the crate's enum, as its
// own error message lists it.
func TestEncodeOrder(t *testing.T) {
	const enum = "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"
	var list []Tensor
	for name := range strings.FieldsSeq(enum) {
		d, ok := tensor.FromSafetensors(name)
		if !ok {
			t.Fatal(name)
		}
		list = append(list, Tensor{Name: "b" + name, DType: d, Shape: tensor.Shape{4}}, Tensor{Name: "a" + name, DType: d, Shape: tensor.Shape{4}})
	}
	l, err := Encode(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, l, nil)
	var got []string
	for i, w := range l.Tensors {
		if size := int64(max(w.DType.Size(), 1)); w.Begin%size != 0 {
			t.Errorf("%s is at %d", w.Name, w.Begin)
		}
		if i%2 == 0 {
			got = append(got, strings.TrimPrefix(w.Name, "a"))
		}
	}
	slices.Reverse(got)
	if s := strings.Join(got, " "); s != enum {
		t.Errorf("got %s", s)
	}
}

// TestEncodeStrange round-trips names and metadata that need escapes; the
// bytes are those of serde_json, which escapes no more than it must.
func TestEncodeStrange(t *testing.T) {
	metadata := map[string]string{"format": "pt", "": "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é": "層\u2028😀"}
	var list []Tensor
	for _, name := range []string{"", "a\x00b", `quote"\/back`, "層.0", "\u2028", "\x7f", "__METADATA__"} {
		list = append(list, Tensor{Name: name, DType: tensor.U8, Shape: tensor.Shape{0}})
	}
	l, err := Encode(list, metadata)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, l, metadata)
	const want = `{"__metadata__":{"":"\"\\/\b\f\n\r\t\u0000\u001f` + "\x7f" + `","format":"pt","é":"層` + "\u2028" + `😀"},"":{"dtype"`
	if !strings.HasPrefix(string(l.Header[8:]), want) {
		t.Errorf("got %s", l.Header[8:])
	}
}

// TestEncodeEmpty compares with the bytes in the crate's own test of this case.
func TestEncodeEmpty(t *testing.T) {
	l, err := Encode(nil, nil)
	if want := "\x08\x00\x00\x00\x00\x00\x00\x00{}      "; err != nil || string(l.Header) != want || l.Size != 16 {
		t.Errorf("got %q, %v", l.Header, err)
	}
	l, err = Encode(nil, map[string]string{"framework": "pt"})
	if want := "\x28\x00\x00\x00\x00\x00\x00\x00" + `{"__metadata__":{"framework":"pt"}}     `; err != nil || string(l.Header) != want {
		t.Errorf("got %q, %v", l.Header, err)
	}
	l, err = Encode(nil, map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, l, map[string]string{})
}

func TestEncodeRefused(t *testing.T) {
	u8 := func(name string, shape ...int64) Tensor { return Tensor{Name: name, DType: tensor.U8, Shape: shape} }
	huge := func(names string) (list []Tensor) { // of which eight leave 7 bytes of an int64
		for _, name := range names {
			list = append(list, u8(string(name), 1<<60-1))
		}
		return list
	}
	for _, c := range []struct {
		name     string
		tensors  []Tensor
		metadata map[string]string
		rule     rule.ID
		words    string
		tensor   string
	}{
		{"duplicate", []Tensor{u8("a"), u8("b"), u8("a")}, nil, rule.DuplicateName, "duplicate name", "a"},
		{"duplicate of another dtype", []Tensor{u8("a"), {Name: "a", DType: tensor.F32}}, nil, rule.DuplicateName, "duplicate name", "a"},
		{"reserved", []Tensor{u8("__metadata__")}, nil, rule.HeaderJSON, "cannot be the name", "__metadata__"},
		{"no such dtype", []Tensor{{Name: "a", DType: tensor.C128}}, nil, rule.HeaderDType, "no dtype for c128", "a"},
		{"stored", []Tensor{{Name: "a"}}, nil, rule.HeaderDType, "no dtype for stored", "a"},
		{"negative", []Tensor{u8("a", -1)}, nil, rule.HeaderShape, "shape [-1] of U8", "a"},
		{"half a byte", []Tensor{{Name: "a", DType: tensor.F4, Shape: tensor.Shape{1}}}, nil, rule.HeaderShape, "whole number of bytes", "a"},
		{"sum overflows", huge("abcdefghi"), nil, rule.Offsets, "overflow", "i"},
		{"sum overflows with the header", huge("abcdefgh"), nil, rule.Offsets, "overflow", "h"},
		{"name not UTF-8", []Tensor{u8("a\xff")}, nil, rule.HeaderJSON, `"a\xff" is not UTF-8`, "a\xff"},
		{"metadata not UTF-8", nil, map[string]string{"a": "\xff"}, rule.HeaderJSON, "is not UTF-8", "__metadata__"},
		{"metadata key not UTF-8", nil, map[string]string{"\xff": "a"}, rule.HeaderJSON, "is not UTF-8", "__metadata__"},
	} {
		_, err := Encode(c.tensors, c.metadata)
		t.Run(c.name, func(t *testing.T) { wantError(t, err, c.rule, c.words, c.tensor, -1) })
	}
	_, err := Encode([]Tensor{{Name: "a", DType: tensor.C128}}, nil)
	if !errors.Is(err, rule.ErrUnsupported) {
		t.Errorf("%v is not ErrUnsupported", err)
	}
}

// TestEncodeLimit refuses a header that no reader would accept.
func TestEncodeLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few hundred megabytes")
	}
	_, err := Encode(nil, map[string]string{"a": strings.Repeat("x", MaxHeader)})
	wantError(t, err, rule.HeaderLength, "above the limit of 100000000", "", -1)
}

// TestEncodeIndexGolden writes the index of the sharded model anew.
func TestEncodeIndexGolden(t *testing.T) {
	want := readFile(t, filepath.Join(golden, "model_sharded", "model.safetensors.index.json"))
	x, err := ParseIndex(want)
	if err != nil {
		t.Fatal(err)
	}
	total, _ := count([]byte(x.Metadata["total_size"]))
	slices.Reverse(x.WeightMap)
	got, err := EncodeIndex(x.WeightMap, total)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: got\n%s", err, got)
	}
}

func TestEncodeIndex(t *testing.T) {
	got, err := EncodeIndex(nil, 0)
	if want := "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	placements := []Placement{{"", "a"}, {"\x00\"é", "m é\"1"}}
	if got, err = EncodeIndex(placements, 7); err != nil {
		t.Fatal(err)
	}
	x, err := ParseIndex(got)
	if err != nil || !slices.Equal(x.WeightMap, placements) || x.Metadata["total_size"] != "7" {
		t.Errorf("%+v, %v", x, err)
	}
	for _, c := range []struct {
		placements []Placement
		rule       rule.ID
		words      string
	}{
		{[]Placement{{"t", "x"}, {"s", "x"}, {"t", "y"}}, rule.IndexJSON, "duplicate name"},
		{[]Placement{{"t", "../x"}}, rule.IndexPath, "leaves the directory"},
		{[]Placement{{"t", "\xff"}}, rule.IndexJSON, "not UTF-8"},
	} {
		_, err := EncodeIndex(c.placements, 0)
		wantError(t, err, c.rule, c.words, "t", -1)
	}
}
