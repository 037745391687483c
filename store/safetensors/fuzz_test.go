package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/internal/rule"
)

// FuzzHeader gives arbitrary JSON to both parsers, to Verify and, where it is
// accepted, to Encode.
func FuzzHeader(f *testing.F) {
	for _, c := range acceptances {
		f.Add([]byte(c.header), int64(c.data))
	}
	for _, c := range refusals {
		f.Add([]byte(c.header), int64(c.data))
	}
	header, end := model(10, "python")
	f.Add(header, end)
	f.Fuzz(func(t *testing.T, header []byte, data int64) {
		if data < 0 || data > 1<<50 || len(header) > 1<<16 {
			t.Skip()
		}
		dataStart := prefixLen + int64(len(header))
		size := dataStart + data
		agree(t, header, size)
		h, err := Parse(header, dataStart, size)
		if len(header) > 1 && header[0] == '{' { // else Sniff or the length field speaks first
			checkVerify(t, header, size, err)
		}
		if err != nil {
			checkError(t, err, size)
			return
		}
		checkTiling(t, h, size)
		checkStd(t, h, header)
		l, err := Encode(h.Tensors, h.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, l, h.Metadata)
	})
}

// checkVerify checks that Verify finds something exactly if Parse does, and the
// same thing first.
func checkVerify(t *testing.T, header []byte, size int64, parse error) {
	t.Helper()
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(append(file, header...), make([]byte, SniffLen)...)
	list, err := Verify(bytes.NewReader(file), size)
	if err != nil {
		t.Fatal(err)
	}
	if (parse == nil) != (len(list) == 0) || parse != nil && list[0].Error() != parse.Error() {
		t.Fatalf("Parse says %v, Verify %v", parse, list)
	}
}

// checkError checks what every error promises.
func checkError(t *testing.T, err error, size int64) {
	t.Helper()
	e, ok := err.(*rule.Error)
	if !ok || e.Rule == "" || e.Path != "" || e.Offset < 0 || e.Offset > size {
		t.Fatalf("%#v", err)
	}
	if len(e.Err.Error()) > 500 {
		t.Fatalf("message of %d bytes", len(e.Err.Error()))
	}
}

// checkTiling checks, in another way than the parsers, that the tensors take
// each byte of the data once.
func checkTiling(t *testing.T, h *Header, size int64) {
	t.Helper()
	var sum int64
	for i, w := range h.Tensors {
		if w.Begin < h.DataStart || w.End < w.Begin || w.End > size || i > 0 && w.Begin < h.Tensors[i-1].End {
			t.Fatalf("tensor %d of %+v", i, h.Tensors)
		}
		sum += w.End - w.Begin
	}
	if sum != size-h.DataStart {
		t.Fatalf("tensors take %d bytes of %d", sum, size-h.DataStart)
	}
}

// checkStd checks the names against those that encoding/json finds.
func checkStd(t *testing.T, h *Header, header []byte) {
	t.Helper()
	var std map[string]json.RawMessage
	if err := json.Unmarshal(header, &std); err != nil {
		t.Fatalf("encoding/json refuses: %v", err)
	}
	delete(std, metadataKey)
	if len(std) != len(h.Tensors) {
		t.Fatalf("%d tensors, encoding/json finds %d", len(h.Tensors), len(std))
	}
	for _, w := range h.Tensors {
		if _, ok := std[w.Name]; !ok {
			t.Fatalf("encoding/json finds no %q", w.Name)
		}
	}
}

// FuzzIndex parses arbitrary indexes; what is accepted must be safe to open
// and must survive being written.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"x.bin","b":"y.bin"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x","b":"C:\\y"}}`))
	f.Add([]byte(`{"weight_map":{"\u0000":"..","b":"\/etc\/passwd"},"metadata":null}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseIndex(data)
		if err != nil {
			if e, ok := err.(*rule.Error); !ok || e.Rule != rule.IndexJSON && e.Rule != rule.IndexPath || e.Offset > int64(len(data)) {
				t.Fatalf("%#v", err)
			}
			return
		}
		for _, shard := range x.Shards {
			if filepath.Base(shard) != shard || shard == "." || shard == ".." || strings.ContainsAny(shard, `/\`) {
				t.Fatalf("shard %q", shard)
			}
		}
		written, err := EncodeIndex(x.WeightMap, 0)
		if err != nil {
			t.Fatal(err)
		}
		y, err := ParseIndex(written)
		if err != nil || !slices.Equal(x.Shards, y.Shards) || len(x.WeightMap) != len(y.WeightMap) {
			t.Fatalf("%v: %s", err, written)
		}
	})
}

// FuzzSniff reads arbitrary files. What Sniff calls something else is refused
// as that; what Read accepts, Sniff calls safetensors.
func FuzzSniff(f *testing.F) {
	f.Add(build(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	f.Add([]byte("PK\x03\x04\x00\x00\x00\x00{"))
	f.Add([]byte("\x80\x02}q\x00."))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"))
	f.Add([]byte("<!DOCTYPE html>"))
	f.Add([]byte("cos\nsystem\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		kind := Sniff(file[:min(len(file), SniffLen)], int64(len(file)))
		_, err := read(file)
		if err == nil {
			if kind != Safetensors {
				t.Fatalf("Read accepts a %v", kind)
			}
			return
		}
		checkError(t, err, int64(len(file)))
		if is := err.(*rule.Error).Rule == rule.NotSafetensors; is != (kind != Safetensors && kind != Unknown) {
			t.Fatalf("%v: %v", kind, err)
		}
	})
}
