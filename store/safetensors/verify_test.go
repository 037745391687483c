package safetensors

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"nibble/internal/rule"
)

func verify(t *testing.T, file []byte) []*rule.Error {
	t.Helper()
	list, err := Verify(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestVerifyFirst checks that Verify finds something exactly where Read fails,
// and that its first finding is Read's error.
func TestVerifyFirst(t *testing.T) {
	for _, c := range refusals {
		file := build(c.header, c.data)
		_, err := read(file)
		list := verify(t, file)
		if len(list) == 0 || list[0].Error() != err.Error() {
			t.Errorf("%s: got %v, want first %v", c.name, list, err)
		}
	}
	for _, c := range acceptances {
		if list := verify(t, build(c.header, c.data)); len(list) > 0 {
			t.Errorf("%s: %v", c.name, list)
		}
	}
	for _, file := range []string{"", "<html>", "1234567"} {
		if list := verify(t, []byte(file)); len(list) != 1 {
			t.Errorf("%q: %v", file, list)
		}
	}
}

// TestVerifyAll finds every problem of one header, each once, and none that
// only follows from another.
func TestVerifyAll(t *testing.T) {
	file := build(`{`+
		`"__metadata__":{"a":"1","n":7,"a":"2","l":[[]]},`+
		`"dtype":{"dtype":"X9","shape":[1],"data_offsets":[0,1]},`+
		`"shape":{"dtype":"U8","shape":[-1,{"x":[1]}],"data_offsets":[1,2]},`+
		`"both":{"dtype":"F4","DType":"F4","shape":[3],"data_offsets":[2,3],"shape":[1]},`+
		`"size":{"dtype":"F32","shape":[2],"data_offsets":[3,7]},`+
		`"size":{"dtype":"U8","shape":[1],"data_offsets":[6,8]},`+
		`"gap":{"dtype":"U8","shape":[1],"data_offsets":[10,11]}`+
		`} x`, 20)
	var got []string
	for _, e := range verify(t, file) {
		got = append(got, string(e.Rule)+" "+e.Tensor+": "+e.Err.Error())
	}
	want := []string{
		`ST-002 __metadata__: __metadata__: the value of "n" is a number, not a string`,
		`ST-003 __metadata__: duplicate key "a" in __metadata__`,
		`ST-002 __metadata__: __metadata__: the value of "l" is an array, not a string`,
		`ST-004 dtype: unknown dtype "X9"`,
		`ST-005 shape: shape holds -1, not an integer from 0 to 2^63-1`,
		`ST-003 both: key "DType" differs from "dtype" only by case`,
		`ST-003 both: duplicate key "shape"`,
		`ST-005 both: shape [3] of F4: size is not a whole number of bytes`,
		`ST-005 size: shape [2] of F32 takes 8 bytes, data_offsets [3,7] hold 4`,
		`ST-003 size: duplicate name in the header`,
		`ST-005 size: shape [1] of U8 takes 1 bytes, data_offsets [6,8] hold 2`,
		`ST-002 : after the header's closing brace comes "x", not space padding`,
		`ST-006 size: bytes [%6,%7) overlap those of "size"`,
		`ST-006 gap: hole of 2 bytes before it: bytes [%8,%10) belong to no tensor`,
		`ST-007 : 9 trailing bytes: file has %20 bytes, header covers %11`,
	}
	dataStart := len(file) - 20
	for i := range want {
		want[i] = strings.NewReplacer("%6", strconv.Itoa(dataStart+6), "%7", strconv.Itoa(dataStart+7), "%8", strconv.Itoa(dataStart+8),
			"%10", strconv.Itoa(dataStart+10), "%11", strconv.Itoa(dataStart+11), "%20", strconv.Itoa(dataStart+20)).Replace(want[i])
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestVerifyUnplaced says nothing of holes where a tensor's place is unknown.
func TestVerifyUnplaced(t *testing.T) {
	for _, broken := range []string{`{"dtype":"U8","shape":[1]}`, `{"dtype":"U8","shape":[1],"data_offsets":[2,1]}`, `null`} {
		file := build(`{"a":`+broken+`,"c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 9)
		if list := verify(t, file); len(list) != 1 || list[0].Tensor != "a" {
			t.Errorf("%s: got %v", broken, list)
		}
	}
}

// TestVerifyInside finds one overlap, and no hole after the tensor that lies
// inside another.
func TestVerifyInside(t *testing.T) {
	file := build(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"c":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}`, 10)
	if list := verify(t, file); len(list) != 1 || list[0].Rule != rule.Offsets || list[0].Tensor != "b" {
		t.Errorf("got %v", list)
	}
}

// TestVerifyBounded gives up on a header that is nothing but problems.
func TestVerifyBounded(t *testing.T) {
	list := verify(t, build(`{"a":{`+strings.Repeat(`"Shape":0,`, 5000)+`"x":0}}`, 0))
	if len(list) != maxFindings || !strings.Contains(list[maxFindings-1].Error(), "stopped after 1000 findings") {
		t.Errorf("%d findings, the last %v", len(list), list[len(list)-1])
	}
}

// TestVerifyIO passes on what is no fault of the file.
func TestVerifyIO(t *testing.T) {
	eio := errors.New("input/output error")
	if list, err := Verify(failingReader{nil, eio}, 100); list != nil || !errors.Is(err, eio) {
		t.Errorf("got %v, %v", list, err)
	}
	list, err := Verify(failingReader{nil, io.EOF}, 100)
	if err != nil || len(list) != 1 || list[0].Rule != rule.Truncated {
		t.Errorf("got %v, %v", list, err)
	}
}
