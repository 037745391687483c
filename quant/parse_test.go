package quant

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nibble/internal/rule"
	"nibble/tensor"
)

const plainState = `{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":[8,48]}`

func TestParseState(t *testing.T) {
	plain := State{QuantType: "nf4", BlockSize: 64, DType: tensor.F16, Shape: tensor.Shape{8, 48}}
	with := func(n Nested) State { s := plain; s.Nested = &n; return s }
	nan := math.NaN()
	for name, c := range map[string]struct {
		json string
		want State
	}{
		"plain":        {plainState, plain},
		"torch prefix": {strings.Replace(plainState, "float16", "torch.float16", 1), plain},
		"escapes":      {strings.Replace(plainState, "nf4", `\u006ef4`, 1), plain},
		"white space":  {" \n" + plainState + "\t\r\n ", plain},
		"unknown keys": {`{"x":{"quant_type":[1,{}]},` + plainState[1:], plain},
		"scalar shape": {strings.Replace(plainState, "[8,48]", "[]", 1), State{"nf4", "", 64, tensor.F16, tensor.Shape{}, nil}},
		"nested": {plainState[:len(plainState)-1] + `,"nested_blocksize":256,"nested_dtype":"float32","nested_offset":0.0625}`,
			with(Nested{256, tensor.F32, 0.0625})},
		// Whether a bad nested field matters depends on absmax, so parsing
		// only marks it.
		"bad nested": {plainState[:len(plainState)-1] + `,"nested_blocksize":"256","nested_dtype":"int8","nested_offset":null}`,
			with(Nested{0, tensor.Stored, nan})},
		"one nested key": {plainState[:len(plainState)-1] + `,"nested_blocksize":256}`, with(Nested{256, tensor.Stored, nan})},
		"huge offset":    {plainState[:len(plainState)-1] + `,"nested_offset":1e999}`, with(Nested{0, tensor.Stored, nan})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseState([]byte(c.json))
			if err != nil {
				t.Fatal(err)
			}
			equalNaN := cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })
			if diff := cmp.Diff(&c.want, got, equalNaN); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
		})
	}
}

// Each malformed state must be refused with its rule and in plain words.
func TestParseStateRefuses(t *testing.T) {
	edit := func(old, new string) string { return strings.Replace(plainState, old, new, 1) }
	for name, c := range map[string]struct {
		json string
		rule rule.ID
		word string
	}{
		"empty":              {"", rule.QuantJSON, "empty"},
		"filled":             {"\x00\x00\x00", rule.QuantJSON, "filled with NUL"},
		"padded":             {plainState + "\x00\x00", rule.QuantJSON, "padded with 2 NUL"},
		"trailing":           {plainState + "x", rule.QuantJSON, "trailing"},
		"two objects":        {plainState + plainState, rule.QuantJSON, "trailing"},
		"truncated":          {plainState[:40], rule.QuantJSON, "truncated"},
		"half a string":      {`{"quant_ty`, rule.QuantJSON, "truncated"},
		"array":              {"[" + plainState + "]", rule.QuantJSON, "an array"},
		"string":             {`"nf4"`, rule.QuantJSON, "a string"},
		"null":               {"null", rule.QuantJSON, "null"},
		"garbage":            {"<html>", rule.QuantJSON, "not JSON"},
		"not UTF-8":          {edit("nf4", "nf\xff"), rule.QuantJSON, "UTF-8"},
		"duplicate key":      {`{"blocksize":32,` + plainState[1:], rule.QuantJSON, "duplicate"},
		"duplicate, escaped": {`{"blocksiz\u0065":32,` + plainState[1:], rule.QuantJSON, "duplicate"},
		"too long":           {plainState + strings.Repeat(" ", MaxState), rule.QuantJSON, "at most"},
		"NaN":                {edit("64", "NaN"), rule.QuantJSON, "not JSON"},
		"offset NaN":         {edit("}", `,"nested_offset": NaN}`), rule.Nested, "NaN or infinite"},
		"offset -Infinity":   {edit("}", `,"nested_offset":-Infinity}`), rule.Nested, "NaN or infinite"},
		"type missing":       {edit(`"quant_type":"nf4",`, ""), rule.QuantType, "quant_type is missing"},
		"type null":          {edit(`"nf4"`, "null"), rule.QuantType, "null"},
		"blocksize missing":  {edit(`"blocksize":64,`, ""), rule.QuantType, "blocksize is missing"},
		"blocksize boolean":  {edit("64", "true"), rule.QuantType, "a boolean"},
		"blocksize 64.0":     {edit("64", "64.0"), rule.QuantType, "64.0"},
		"blocksize 6.4e1":    {edit("64", "6.4e1"), rule.QuantType, "integer"},
		"blocksize huge":     {edit("64", "1"+strings.Repeat("0", 60)), rule.QuantType, "..."},
		"dtype missing":      {edit(`"dtype":"float16",`, ""), rule.QuantShape, "dtype is missing"},
		"dtype int8":         {edit("float16", "int8"), rule.QuantShape, "int8"},
		"dtype float64":      {edit("float16", "float64"), rule.QuantShape, "float64"},
		"shape missing":      {edit(`,"shape":[8,48]`, ""), rule.QuantShape, "shape is missing"},
		"shape null":         {edit("[8,48]", "null"), rule.QuantShape, "shape is null"},
		"shape nested":       {edit("48]", "[48]]"), rule.QuantShape, "shape[1] is an array"},
		"shape boolean":      {edit("48]", "true]"), rule.QuantShape, "shape[1] is a boolean"},
		"shape float":        {edit("48]", "48.5]"), rule.QuantShape, "48.5"},
		"shape beyond int64": {edit("48]", "9223372036854775808]"), rule.QuantShape, "integer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseState([]byte(c.json))
			mustBreak(t, err, c.rule, c.word)
		})
	}
}

// mustBreak checks an error's rule and that its message has a word.
func mustBreak(t *testing.T, err error, id rule.ID, word string) {
	t.Helper()
	var e *rule.Error
	if !errors.As(err, &e) || e.Rule != id || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v; want rule %s and %q", err, id, word)
	}
}

// FuzzParseState looks for panics, errors without a rule, and states whose
// checks let numbers through that decoding could not bear.
func FuzzParseState(f *testing.F) {
	f.Add([]byte(plainState))
	f.Add([]byte(plainState + "\x00"))
	f.Add([]byte(`{"quant_type":"fp4","blocksize":64,"dtype":"torch.float32","shape":[1],"nested_offset":NaN}`))
	f.Add([]byte(`{"shape":[9223372036854775807,0,2]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseState(data)
		if err == nil {
			err = s.Check()
		}
		if err != nil {
			var e *rule.Error
			if !errors.As(err, &e) || e.Rule == "" {
				t.Fatalf("an error without a rule: %v", err)
			}
			return
		}
		if n, ok := s.Shape.Numel(); !ok || n < 0 || s.BlockSize < 32 || s.BlockSize > 4096 {
			t.Fatalf("accepted %+v", s)
		}
	})
}
