package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

const golden = "../../testdata/golden"

// manifest is the part of golden/manifest.json that this room answers to.
type manifest struct {
	Cases []struct {
		Path      string
		Container string
		Raw       map[string]rawTensor
	}
	Hostile []struct {
		Path   string
		Level  string
		Expect string
	}
}

type rawTensor struct {
	DType  string
	Shape  tensor.Shape
	SHA256 string
}

func readManifest(t *testing.T) (m manifest) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, filepath.Join(golden, "manifest.json")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read is Read of bytes.
func read(file []byte) (*Header, error) {
	return Read(bytes.NewReader(file), int64(len(file)))
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestGoldenHeaders checks names, dtypes, shapes and byte ranges of every valid
// file against what the independent verifier of the vectors recorded.
func TestGoldenHeaders(t *testing.T) {
	for _, c := range readManifest(t).Cases {
		if c.Container != "safetensors" {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			file := readFile(t, filepath.Join(golden, c.Path))
			h, err := read(file)
			if err != nil {
				t.Fatal(err)
			}
			compareRaw(t, h, file, c.Raw)
		})
	}
}

// TestGoldenShards does the same through the index of the sharded model.
func TestGoldenShards(t *testing.T) {
	for _, c := range readManifest(t).Cases {
		if c.Container != "safetensors-index" {
			continue
		}
		t.Run(c.Path, func(t *testing.T) {
			dir := filepath.Dir(filepath.Join(golden, c.Path))
			x, err := ParseIndex(readFile(t, filepath.Join(golden, c.Path)))
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, shard := range x.Shards {
				file := readFile(t, filepath.Join(dir, shard))
				h, err := read(file)
				if err != nil {
					t.Fatal(shard, err)
				}
				raw := make(map[string]rawTensor)
				for _, w := range x.WeightMap {
					if w.Shard == shard {
						raw[w.Tensor] = c.Raw[w.Tensor]
					}
				}
				compareRaw(t, h, file, raw)
				found += len(raw)
			}
			if found != len(c.Raw) {
				t.Errorf("shards hold %d tensors, want %d", found, len(c.Raw))
			}
		})
	}
}

func compareRaw(t *testing.T, h *Header, file []byte, want map[string]rawTensor) {
	t.Helper()
	if len(h.Tensors) != len(want) {
		t.Errorf("%d tensors, want %d", len(h.Tensors), len(want))
	}
	for name, w := range want {
		i, ok := h.Lookup(name)
		if !ok {
			t.Errorf("no tensor %q", name)
			continue
		}
		got := h.Tensors[i]
		if got.Name != name || got.DType.Safetensors() != w.DType || got.Shape.String() != w.Shape.String() {
			t.Errorf("%q: got %q %v %v, want %v %v", name, got.Name, got.DType.Safetensors(), got.Shape, w.DType, w.Shape)
		}
		if sum := hexSum(file[got.Begin:got.End]); sum != w.SHA256 {
			t.Errorf("%q: wrong bytes [%d,%d)", name, got.Begin, got.End)
		}
	}
}

// hostile is what each hostile file of the vectors must be refused with: the
// rule, words of the message, the tensor and the absolute offset.
var hostile = map[string]struct {
	rule   rule.ID
	words  string
	tensor string
	offset int64
}{
	"safetensors/header_len_gt_file":    {rule.HeaderLength, "truncated: file has 184 bytes, the header alone reaches to byte 1000008", "", 0},
	"safetensors/header_len_2_63":       {rule.HeaderLength, "header length 9223372036854775808 is above the limit of 100000000", "", 0},
	"safetensors/header_len_over_100mb": {rule.HeaderLength, "header length 100000001 is above the limit", "", 0},
	"safetensors/header_len_short":      {rule.HeaderJSON, "header JSON is truncated", "a", 48},
	"safetensors/header_len_zero":       {rule.HeaderLength, "header length 0 is too short", "", 0},
	"safetensors/overlap":               {rule.Offsets, `bytes [144,152) overlap those of "a"`, "b", 144},
	"safetensors/hole":                  {rule.Offsets, "hole of 8 bytes before it: bytes [152,160) belong to no tensor", "b", 152},
	"safetensors/beyond_eof":            {rule.Length, "truncated: file has 192 bytes, header covers 480", "", 192},
	"safetensors/begin_gt_end":          {rule.Offsets, "end before they begin: [64,32]", "b", 111},
	"safetensors/duplicate_name":        {rule.DuplicateName, "duplicate name", "a", 63},
	"safetensors/duplicate_name_same":   {rule.DuplicateName, "duplicate name", "a", 63},
	"safetensors/not_brace":             {rule.HeaderJSON, "not with '{'", "", 8},
	"safetensors/size_mismatch":         {rule.HeaderShape, "shape [3,4] of F32 takes 48 bytes, data_offsets [0,32] hold 32", "a", 9},
	"safetensors/invalid_utf8_name":     {rule.HeaderJSON, "invalid UTF-8", "", 10},
	"safetensors/empty_file":            {rule.NotSafetensors, "empty file", "", 0},
	"safetensors/seven_bytes":           {rule.HeaderLength, "truncated: file has 7 bytes", "", 7},
	"safetensors/trailing_data":         {rule.Length, "2 trailing bytes: file has 186 bytes, header covers 184", "", 184},
	"safetensors/unknown_dtype":         {rule.HeaderDType, `unknown dtype "F33"`, "a", 22},
	"safetensors/shape_overflow":        {rule.HeaderShape, "shape [4611686018427387904,4,8] of F32: size overflows", "a", 9},
	"safetensors/negative_shape":        {rule.HeaderShape, "shape holds -2, not an integer", "a", 37},
	"safetensors/negative_offset":       {rule.Offsets, "data_offsets holds -32, not an integer", "a", 58},
	"safetensors/truncated_data":        {rule.Length, "truncated: file has 179 bytes, header covers 184", "", 179},
	"safetensors/float_offset":          {rule.Offsets, "data_offsets holds 32.0, not an integer", "b", 127},
	"safetensors/missing_dtype":         {rule.HeaderJSON, "entry has no dtype", "a", 9},
	"safetensors/metadata_not_strings":  {rule.HeaderJSON, `__metadata__: the value of "n" is a number, not a string`, "__metadata__", 140},
	"safetensors/json_truncated":        {rule.HeaderJSON, "header JSON is truncated", "b", 136},
	"index/path_traversal":              {rule.IndexPath, `shard "../../../../../../../../etc/passwd" leaves the directory`, "a.weight", 79},
	"index/not_json":                    {rule.IndexJSON, "index JSON: invalid character 'o'", "", 1},
}

// The store finds these two, when it opens the shards.
var storeFinds = map[string]bool{"index/missing_shard": true, "index/wrong_shard": true}

// TestGoldenHostile opens every hostile header and index of the vectors.
func TestGoldenHostile(t *testing.T) {
	seen := 0
	for _, c := range readManifest(t).Hostile {
		if c.Level != "safetensors" && c.Level != "index" {
			continue
		}
		seen++
		key := strings.TrimPrefix(c.Path, "hostile/")
		var err error
		file := readFile(t, filepath.Join(golden, c.Path))
		if c.Level == "index" {
			key = filepath.ToSlash(filepath.Dir(key))
			_, err = ParseIndex(file)
		} else {
			key = strings.TrimSuffix(key, ".safetensors")
			_, err = read(file)
		}
		if storeFinds[key] {
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			continue
		}
		w, ok := hostile[key]
		if !ok {
			t.Errorf("%s: no expectation", key)
			continue
		}
		t.Run(key, func(t *testing.T) { wantError(t, err, w.rule, w.words, w.tensor, w.offset) })
	}
	if want := len(hostile) + len(storeFinds); seen != want {
		t.Errorf("%d hostile files, want %d", seen, want)
	}
}

// wantError checks an error by its rule, its words, its tensor and its offset.
func wantError(t *testing.T, err error, id rule.ID, words, tensor string, offset int64) {
	t.Helper()
	var e *rule.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *rule.Error", err)
	}
	if e.Rule != id || e.Tensor != tensor || e.Offset != offset || !strings.Contains(e.Err.Error(), words) || e.Path != "" {
		t.Errorf("got %s %q at %d: %v\nwant %s %q at %d: … %s", e.Rule, e.Tensor, e.Offset, e.Err, id, tensor, offset, words)
	}
}

// failingReader fails after its first n bytes.
type failingReader struct {
	b   []byte
	err error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r.b[min(off, int64(len(r.b))):])
	if n < len(p) {
		return n, r.err
	}
	return n, nil
}

// TestReadErrors tells a source that fails from a file that is wrong: only the
// second may be remembered.
func TestReadErrors(t *testing.T) {
	file := build(`{}`, 0)
	eio := errors.New("input/output error")
	_, err := Read(failingReader{file[:9], eio}, int64(len(file)))
	var e *rule.Error
	if !errors.Is(err, eio) || errors.As(err, &e) {
		t.Errorf("got %v, want the reader's error and no rule", err)
	}
	long := build("{}"+strings.Repeat(" ", SniffLen), 0)
	if _, err = Read(failingReader{long[:SniffLen], eio}, int64(len(long))); !errors.Is(err, eio) {
		t.Errorf("got %v, want the reader's error", err)
	}
	_, err = Read(failingReader{file[:9], io.EOF}, int64(len(file)))
	wantError(t, err, rule.Truncated, "truncated while open", "", 9)
	if !errors.Is(err, rule.ErrTruncated) {
		t.Errorf("%v is not ErrTruncated", err)
	}
}

// build makes a file of a header and n data bytes.
func build(header string, n int) []byte {
	b := fmt.Appendf(nil, "%c\x00\x00\x00\x00\x00\x00\x00%s", 0, header)
	b[0], b[1], b[2] = byte(len(header)), byte(len(header)>>8), byte(len(header)>>16)
	return append(b, make([]byte, n)...)
}
