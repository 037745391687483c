package safetensors

import (
	"slices"
	"testing"

	"nibble/internal/rule"
)

func TestParseIndex(t *testing.T) {
	x, err := ParseIndex([]byte(`{
		"metadata": {"total_size": 160605, "note": "a\"b", "list": [1, 2]},
		"other": {"ignored": [{}]},
		"weight_map": {"z": "m-2.bin", "a": "m-1.bin", "b": "m-2.bin", "\u5c42": "..name..", "": "m-1.bin"}
	} ` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Placement{{"z", "m-2.bin"}, {"a", "m-1.bin"}, {"b", "m-2.bin"}, {"层", "..name.."}, {"", "m-1.bin"}}
	if !slices.Equal(x.WeightMap, want) {
		t.Errorf("got %v, want %v", x.WeightMap, want)
	}
	if !slices.Equal(x.Shards, []string{"..name..", "m-1.bin", "m-2.bin"}) {
		t.Errorf("shards %v", x.Shards)
	}
	if m := x.Metadata; len(m) != 3 || m["total_size"] != "160605" || m["note"] != `a"b` || m["list"] != "[1, 2]" {
		t.Errorf("metadata %v", m)
	}
}

// TestParseIndexSparse opens indexes without what some writers leave out.
func TestParseIndexSparse(t *testing.T) {
	for _, index := range []string{`{"weight_map":{}}`, `{"metadata":null,"weight_map":{}}`} {
		x, err := ParseIndex([]byte(index))
		if err != nil || x.Metadata != nil || len(x.WeightMap)+len(x.Shards) != 0 {
			t.Errorf("%s: %+v, %v", index, x, err)
		}
	}
}

func TestParseIndexRefused(t *testing.T) {
	for _, c := range []struct {
		index  string
		rule   rule.ID
		words  string
		tensor string
		offset int64
	}{
		{``, rule.IndexJSON, "index is empty", "", 0},
		{`[]`, rule.IndexJSON, "index is an array, not an object", "", 0},
		{`{}`, rule.IndexJSON, "no weight_map", "", -1},
		{`{"weight_map":null}`, rule.IndexJSON, "weight_map is null", "", 14},
		{`{"weight_map":{"a":1}}`, rule.IndexJSON, "shard is a number", "a", 19},
		{`{"weight_map":{"a":"x"`, rule.IndexJSON, "truncated", "", 22},
		{`{"weight_map":{"a":"x"}}}`, rule.IndexJSON, `comes "}"`, "", 24},
		{`{"weight_map":{"a":"x","a":"y"}}`, rule.IndexJSON, `duplicate key "a"`, "", 23},
		{`{"weight_map":{"a":"x","\u0061":"x"}}`, rule.IndexJSON, `duplicate key "a"`, "", 23},
		{`{"weight_map":{},"weight_map":{}}`, rule.IndexJSON, `duplicate key "weight_map"`, "", 17},
		{`{"metadata":[],"weight_map":{}}`, rule.IndexJSON, "metadata is an array", "", 12},
		{"{\"weight_map\":{\"a\":\"\xff\"}}", rule.IndexJSON, "invalid UTF-8", "", 20},
		{`{"weight_map":{"a":""}}`, rule.IndexPath, "empty name", "a", 19},
		{`{"weight_map":{"a":"."}}`, rule.IndexPath, "is a directory", "a", 19},
		{`{"weight_map":{"a":".."}}`, rule.IndexPath, "is a directory", "a", 19},
		{`{"weight_map":{"a":"../x"}}`, rule.IndexPath, "leaves the directory", "a", 19},
		{`{"weight_map":{"a":"x/y"}}`, rule.IndexPath, "leaves the directory", "a", 19},
		{`{"weight_map":{"a":"\/etc\/passwd"}}`, rule.IndexPath, "leaves the directory", "a", 19},
		{`{"weight_map":{"a":"..\\x"}}`, rule.IndexPath, "leaves the directory", "a", 19},
		{`{"weight_map":{"a":"C:x"}}`, rule.IndexPath, "not a plain file name", "a", 19},
		{`{"weight_map":{"a":"x\u0000"}}`, rule.IndexPath, "not a plain file name", "a", 19},
	} {
		x, err := ParseIndex([]byte(c.index))
		if x != nil {
			t.Errorf("%s: an index beside the error", c.index)
		}
		t.Run(c.index, func(t *testing.T) { wantError(t, err, c.rule, c.words, c.tensor, c.offset) })
	}
}

// TestParseIndexLimit refuses an index by its length, before it is parsed.
func TestParseIndexLimit(t *testing.T) {
	_, err := ParseIndex(make([]byte, MaxIndex+1))
	wantError(t, err, rule.IndexJSON, "above the limit of 100000000", "", -1)
}
