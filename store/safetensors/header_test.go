package safetensors

import (
	"errors"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

// refusals are headers that must be refused, one for each way to break a rule.
// The offset is that of the text in `at` (its last occurrence) within the
// file, or, where at is empty, the number off.
var refusals = []struct {
	name   string
	header string
	data   int
	rule   rule.ID
	words  string
	tensor string
	at     string
	off    int64
}{
	{"leading space", ` {}`, 0, rule.HeaderJSON, `starts with " {}"`, "", " {", 0},
	{"byte order mark", "\ufeff{}", 0, rule.HeaderJSON, "starts with", "", "\ufeff", 0},
	{"newline after", "{}\n", 0, rule.HeaderJSON, "not space padding", "", "\n", 0},
	{"NUL padding", "{}  \x00\x00", 0, rule.HeaderJSON, `comes "\x00\x00"`, "", "\x00\x00", 0},
	{"second object", "{} {}", 0, rule.HeaderJSON, "not space padding", "", "{}", 0},
	{"comma at end", `{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},}`, 1, rule.HeaderJSON, "header JSON", "", ",}", 0},
	{"bare name", `{"a"}`, 0, rule.HeaderJSON, "header JSON", "a", "}", 0},
	{"name not a string", `{1:2}`, 0, rule.HeaderJSON, "header JSON", "", "1", 0},
	{"control character in a name", "{\"a\tb\":null}", 0, rule.HeaderJSON, "header JSON", "", "\t", 0},
	{"invalid UTF-8 in a value", "{\"a\":{\"dtype\":\"U8\xff\"}}", 0, rule.HeaderJSON, "invalid UTF-8", "a", "\xff", 0},
	{"lone surrogate", `{"\ud800":null}`, 0, rule.HeaderJSON, "surrogate", "", `\ud800`, 0},
	{"cut in a key", `{"a":{"dty`, 0, rule.HeaderJSON, "truncated", "a", "", 18},

	{"entry null", `{"a":null}`, 0, rule.HeaderJSON, "entry is null", "a", "null", 0},
	{"entry true", `{"a":true}`, 0, rule.HeaderJSON, "entry is a boolean", "a", "true", 0},
	{"entry array", `{"a":[]}`, 0, rule.HeaderJSON, "entry is an array", "a", "[", 0},
	{"no shape", `{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1, rule.HeaderJSON, "no shape", "a", `"a"`, 0},
	{"no offsets", `{"a":{"dtype":"U8","shape":[1]}}`, 1, rule.HeaderJSON, "no data_offsets", "a", `"a"`, 0},
	{"empty entry", `{"a":{}}`, 0, rule.HeaderJSON, "no dtype", "a", `"a"`, 0},

	{"duplicate name after escape", `{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 2, rule.DuplicateName, "duplicate name", "a", `"\u0061"`, 0},
	{"duplicate key", `{"a":{"dtype":"U8","dtype":"I8","shape":[],"data_offsets":[0,1]}}`, 1, rule.DuplicateName, `duplicate key "dtype"`, "a", `"dtype":"I8"`, 0},
	{"duplicate key after escape", `{"a":{"shape":[],"dtype":"U8","sh\u0061pe":[],"data_offsets":[0,1]}}`, 1, rule.DuplicateName, `duplicate key "shape"`, "a", `"sh\u0061pe"`, 0},
	{"DATA_OFFSETS beside", `{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"DATA_OFFSETS":[0,2]}}`, 1, rule.DuplicateName, `key "DATA_OFFSETS" differs from "data_offsets" only by case`, "a", `"DATA_OFFSETS"`, 0},
	{"Dtype instead", `{"a":{"Dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1, rule.DuplicateName, "only by case", "a", `"Dtype"`, 0},
	{"folded by Unicode", `{"a":{"ſhape":[1],"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1, rule.DuplicateName, "only by case", "a", `"ſhape"`, 0},
	{"duplicate metadata", `{"__metadata__":{},"__metadata__":{}}`, 0, rule.DuplicateName, "duplicate name", "__metadata__", `"__metadata__":{}}`, 0},
	{"duplicate metadata key", `{"__metadata__":{"a":"1","a":"1"}}`, 0, rule.DuplicateName, `duplicate key "a" in __metadata__`, "__metadata__", `"a":"1"}`, 0},
	{"metadata string", `{"__metadata__":"pt"}`, 0, rule.HeaderJSON, "__metadata__ is a string", "__metadata__", `"pt"`, 0},
	{"metadata value null", `{"__metadata__":{"a":null}}`, 0, rule.HeaderJSON, `the value of "a" is null`, "__metadata__", "null", 0},
	{"metadata value object", `{"__metadata__":{"a":{"b":"c"}}}`, 0, rule.HeaderJSON, `the value of "a" is an object`, "__metadata__", `{"b"`, 0},

	{"dtype number", `{"a":{"dtype":1,"shape":[],"data_offsets":[0,1]}}`, 1, rule.HeaderJSON, "dtype is a number", "a", `1,"shape`, 0},
	{"dtype of another case", `{"a":{"dtype":"u8","shape":[],"data_offsets":[0,1]}}`, 1, rule.HeaderDType, `unknown dtype "u8"`, "a", `"u8"`, 0},
	{"dtype empty", `{"a":{"dtype":"","shape":[],"data_offsets":[0,1]}}`, 1, rule.HeaderDType, `unknown dtype ""`, "a", `""`, 0},
	{"dtype without safetensors name", `{"a":{"dtype":"C128","shape":[],"data_offsets":[0,16]}}`, 16, rule.HeaderDType, `unknown dtype "C128"`, "a", `"C128"`, 0},

	{"shape null", `{"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1, rule.HeaderShape, "shape is null", "a", "null", 0},
	{"shape nested", `{"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}}`, 1, rule.HeaderShape, "shape holds [1]", "a", "[1]]", 0},
	{"shape minus zero", `{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "shape holds -0", "a", "-0", 0},
	{"shape exponent", `{"a":{"dtype":"U8","shape":[1e2],"data_offsets":[0,100]}}`, 100, rule.HeaderShape, "shape holds 1e2", "a", "1e2", 0},
	{"shape string", `{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, 1, rule.HeaderShape, `shape holds "1"`, "a", `"1"`, 0},
	{"shape true", `{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}`, 1, rule.HeaderShape, "shape holds true", "a", "true", 0},
	{"dimension 2^63", `{"a":{"dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "shape holds 9223372036854775808", "a", "9223372036854775808", 0},
	{"dimension 2^64+1", `{"a":{"dtype":"U8","shape":[18446744073709551617],"data_offsets":[0,1]}}`, 1, rule.HeaderShape, "shape holds 18446744073709551617", "a", "18446744073709551617", 0},
	{"product wraps to zero", `{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "overflows", "a", `"a"`, 0},
	{"product of bits wraps", `{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "overflows", "a", `"a"`, 0},
	{"zero hides overflow", `{"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "overflows", "a", `"a"`, 0},
	{"one element, no bytes", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,0]}}`, 0, rule.HeaderShape, "takes 1 bytes, data_offsets [0,0] hold 0", "a", `"a"`, 0},
	{"no elements, one byte", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,1]}}`, 1, rule.HeaderShape, "takes 0 bytes", "a", `"a"`, 0},
	{"half a byte", `{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2, rule.HeaderShape, "not a whole number of bytes", "a", `"a"`, 0},
	{"six bits", `{"a":{"dtype":"F6_E2M3","shape":[2],"data_offsets":[0,2]}}`, 2, rule.HeaderShape, "not a whole number of bytes", "a", `"a"`, 0},

	{"offsets null", `{"a":{"dtype":"U8","shape":[1],"data_offsets":null}}`, 1, rule.Offsets, "data_offsets is null", "a", "null", 0},
	{"one offset", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1]}}`, 1, rule.Offsets, "has 1 values", "a", "[1]}", 0},
	{"no offset", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[]}}`, 1, rule.Offsets, "has 0 values", "a", "[]", 0},
	{"three offsets", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1, rule.Offsets, "has 3 values", "a", "[0,1,2]", 0},
	{"offsets wrap", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}}`, 1, rule.Offsets, "data_offsets holds 18446744073709551615", "a", "18446744073709551615", 0},
	{"offsets overflow with the header", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}}`, 1, rule.Offsets, "overflow", "a", "[9223372036854775806", 0},
	{"same bytes twice", `{"k":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2, rule.Offsets, `overlap those of "k"`, "v", "", 113},
	{"no bytes inside another", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2, rule.Offsets, `overlap those of "a"`, "z", "", 114},
	{"hole at the start", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, rule.Offsets, "hole of 1 bytes before it: bytes [61,62)", "a", "", 61},
	{"hole before no bytes", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 1, rule.Offsets, "hole of 1 bytes", "a", "", 61},
	{"one byte short", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, rule.Length, "truncated: file has 62 bytes, header covers 63", "", "", 62},
	{"one byte more", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 3, rule.Length, "1 trailing bytes: file has 64 bytes, header covers 63", "", "", 63},
	{"one byte more, bytes in another order", `{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 3, rule.Length, "1 trailing bytes: file has 116 bytes, header covers 115", "", "", 115},
	{"bytes but no tensor", `{}`, 1, rule.Length, "1 trailing bytes", "", "", 10},
}

func TestHeaderRefused(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			file := build(c.header, c.data)
			if c.at != "" {
				c.off = int64(strings.LastIndex(string(file[:8+len(c.header)]), c.at))
			}
			h, err := read(file)
			if h != nil {
				t.Error("a header beside the error")
			}
			wantError(t, err, c.rule, c.words, c.tensor, c.off)
			if truncated := strings.HasPrefix(c.words, "truncated: file"); errors.Is(err, rule.ErrTruncated) != truncated {
				t.Errorf("ErrTruncated: got %v", !truncated)
			}
		})
	}
}

// acceptances are headers that must open, with the tensors in the order of
// their bytes; offsets are relative to the data.
var acceptances = []struct {
	name   string
	header string
	data   int
	want   []Tensor
}{
	{"no tensors", `{}`, 0, nil},
	{"no tensors, padded", `{}      `, 0, nil},
	{"only metadata", `{"__metadata__":{"format":"pt"}}`, 0, nil},
	{"scalar", `{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4, []Tensor{{"a", tensor.F32, tensor.Shape{}, 0, 4}}},
	{"padded", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   `, 1, []Tensor{{"a", tensor.U8, tensor.Shape{1}, 0, 1}}},
	{"spaces of Python", `{"a": {"dtype": "U8", "shape": [2, 3], "data_offsets": [0, 6]}, "b": {"dtype": "I8", "shape": [1], "data_offsets": [6, 7]}}`, 7,
		[]Tensor{{"a", tensor.U8, tensor.Shape{2, 3}, 0, 6}, {"b", tensor.I8, tensor.Shape{1}, 6, 7}}},
	{"white space of any kind", "{\n\t\"a\" : {\r\n\"dtype\"\t:\"U8\", \"shape\" :[ 1 ],\"data_offsets\":[\n0 ,\t1 ] } }", 1,
		[]Tensor{{"a", tensor.U8, tensor.Shape{1}, 0, 1}}},
	{"keys in another order", `{"a":{"data_offsets":[0,2],"shape":[1],"dtype":"F16"}}`, 2, []Tensor{{"a", tensor.F16, tensor.Shape{1}, 0, 2}}},
	{"unknown keys", `{"a":{"x":{"y":[1,{"y":1,"y":2}]},"dtype":"U8","x":1,"shape":[1],"data_offsets":[0,1],"":null}}`, 1,
		[]Tensor{{"a", tensor.U8, tensor.Shape{1}, 0, 1}}},
	{"escapes", `{"\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00":{"\u0064type":"\u00558","shape":[1],"data_offsets":[0,1]}}`, 1,
		[]Tensor{{"\"\\/\b\f\n\r\t\x00é😀", tensor.U8, tensor.Shape{1}, 0, 1}}},
	{"empty name and strange ones", `{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"层\u007f":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"__METADATA__":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"dtype":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 4,
		[]Tensor{{"", tensor.U8, tensor.Shape{1}, 0, 1}, {"层\x7f", tensor.U8, tensor.Shape{1}, 1, 2}, {"__METADATA__", tensor.U8, tensor.Shape{1}, 2, 3}, {"dtype", tensor.U8, tensor.Shape{1}, 3, 4}}},
	{"bytes in another order", `{"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 5,
		[]Tensor{{"a", tensor.F32, tensor.Shape{1}, 0, 4}, {"b", tensor.U8, tensor.Shape{1}, 4, 5}}},
	{"no elements at start, middle and end", `{"e":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[3,3]},"m":{"dtype":"F32","shape":[3,0,2],"data_offsets":[1,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"s":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},"f":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}}`, 3,
		[]Tensor{{"s", tensor.I64, tensor.Shape{0}, 0, 0}, {"x", tensor.U8, tensor.Shape{1}, 0, 1}, {"m", tensor.F32, tensor.Shape{3, 0, 2}, 1, 1}, {"y", tensor.U8, tensor.Shape{2}, 1, 3}, {"e", tensor.F8E4M3, tensor.Shape{0}, 3, 3}, {"f", tensor.U8, tensor.Shape{0}, 3, 3}}},
	{"sub-byte types", `{"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]},"b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[8,11]},"c":{"dtype":"F6_E3M2","shape":[0],"data_offsets":[11,11]}}`, 11,
		[]Tensor{{"a", tensor.F4, tensor.Shape{2, 8}, 0, 8}, {"b", tensor.F6E2M3, tensor.Shape{4}, 8, 11}, {"c", tensor.F6E3M2, tensor.Shape{0}, 11, 11}}},
	{"metadata last", `{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"__metadata__":{"k":"\u0000\"v"}}`, 1, []Tensor{{"a", tensor.Bool, tensor.Shape{1}, 0, 1}}},
}

func TestHeaderAccepted(t *testing.T) {
	for _, c := range acceptances {
		t.Run(c.name, func(t *testing.T) {
			h, err := read(build(c.header, c.data))
			if err != nil {
				t.Fatal(err)
			}
			if h.DataStart != 8+int64(len(c.header)) || len(h.Tensors) != len(c.want) {
				t.Fatalf("got %+v", h)
			}
			for i, w := range c.want {
				w.Begin += h.DataStart
				w.End += h.DataStart
				if !same(h.Tensors[i], w) {
					t.Errorf("got %+v, want %+v", h.Tensors[i], w)
				}
				if j, ok := h.Lookup(w.Name); !ok || j != i {
					t.Errorf("Lookup(%q) = %d, %v", w.Name, j, ok)
				}
			}
			if _, ok := h.Lookup("no such tensor"); ok {
				t.Error("found what is not there")
			}
		})
	}
}

func same(a, b Tensor) bool {
	return a.Name == b.Name && a.DType == b.DType && a.Shape.String() == b.Shape.String() && a.Begin == b.Begin && a.End == b.End
}

// TestEveryDType opens one tensor of each dtype that the format names, with
// the size in bits that its specification gives for eight elements.
func TestEveryDType(t *testing.T) {
	for name, bytes := range map[string]string{
		"BOOL": "8", "U8": "8", "I8": "8", "F8_E4M3": "8", "F8_E5M2": "8", "F8_E8M0": "8", "F8_E4M3FNUZ": "8", "F8_E5M2FNUZ": "8",
		"I16": "16", "U16": "16", "F16": "16", "BF16": "16", "I32": "32", "U32": "32", "F32": "32",
		"F64": "64", "I64": "64", "U64": "64", "C64": "64", "F4": "4", "F6_E2M3": "6", "F6_E3M2": "6",
	} {
		n, _ := count([]byte(bytes))
		h, err := read(build(`{"a":{"dtype":"`+name+`","shape":[2,4],"data_offsets":[0,`+bytes+`]}}`, int(n)))
		if err != nil || h.Tensors[0].DType.Safetensors() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMetadata covers what __metadata__ may be.
func TestMetadata(t *testing.T) {
	for header, want := range map[string]map[string]string{
		`{}`:                    nil,
		`{"__metadata__":null}`: nil,
		`{"__metadata__":{}}`:   {},
		`{"__metadata__":{"":"","é\n":"\"x\""}}`: {"": "", "é\n": `"x"`},
	} {
		h, err := read(build(header, 0))
		if err != nil {
			t.Error(header, err)
			continue
		}
		if (h.Metadata == nil) != (want == nil) || len(h.Metadata) != len(want) {
			t.Errorf("%s: got %v", header, h.Metadata)
		}
		for k, v := range want {
			if h.Metadata[k] != v {
				t.Errorf("%s: %q is %q", header, k, h.Metadata[k])
			}
		}
	}
}

// TestLongMessages keeps a hostile header from filling a terminal.
func TestLongMessages(t *testing.T) {
	long := strings.Repeat("é", 10000)
	_, err := read(build(`{"a":{"dtype":"`+long+`"}}`, 0))
	if e := err.(*rule.Error); len(e.Err.Error()) > 100 {
		t.Errorf("message of %d bytes", len(e.Err.Error()))
	}
}

// TestParseBorrowsNothing changes the caller's bytes after Parse.
func TestParseBorrowsNothing(t *testing.T) {
	json := []byte(`{"name":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`)
	h, err := Parse(json, 8+int64(len(json)), 9+int64(len(json)))
	if err != nil {
		t.Fatal(err)
	}
	clear(json)
	if _, ok := h.Lookup("name"); !ok || h.Tensors[0].Name != "name" {
		t.Errorf("got %+v", h)
	}
}

// TestShapesApart appends to one shape: the next must not change, though they
// share an allocation.
func TestShapesApart(t *testing.T) {
	for _, a := range []string{`"a"`, `"\u0061"`} { // by the scanner, by the complete parser
		h, err := read(build(`{`+a+`:{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3))
		if err != nil {
			t.Fatal(err)
		}
		_ = append(h.Tensors[0].Shape, 7)
		if got := h.Tensors[1].Shape[0]; got != 2 {
			t.Errorf("%s: got %d", a, got)
		}
	}
}

// TestNamesCollide gives two names one slot and one tag: only the name itself
// decides.
func TestNamesCollide(t *testing.T) {
	tensors := []Tensor{{Name: "a"}}
	n, _, _ := indexNames(tensors)
	slot, tag := n.hash("a")
	if !n.matches(tensors, slot, tag, "a") || n.matches(tensors, slot, tag, "b") {
		t.Error("a name was found by its hash alone")
	}
}

// TestTies keeps the header's order among tensors without bytes, in both
// parsers; twelve and fewer would be in order by luck.
func TestTies(t *testing.T) {
	for _, last := range []string{`"u"`, `"\u0075"`} {
		var b strings.Builder
		b.WriteString(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},`)
		const names = "qwertzasdfghjklyvbnmpo"
		for _, name := range names {
			b.WriteString(`"` + string(name) + `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`)
		}
		b.WriteString(last + `:{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`)
		h, err := read(build(b.String(), 1))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range h.Tensors {
			got += w.Name
		}
		if got != names+"ux" {
			t.Errorf("%s: got %s", last, got)
		}
	}
}
