package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"nibble/tensor"
)

// The manifest of the golden vectors, as far as these tests read it. It was
// written by the reference implementation.
type manifest struct {
	Cases   []goldenCase
	Hostile []hostileCase
}

type goldenCase struct {
	Path         string
	Container    string
	NaNCanonical bool `json:"nan_canonical"`
	Tensors      []goldenTensor
	Raw          json.RawMessage
}

type goldenTensor struct {
	Name          string
	Kind          string
	Nested        bool
	Shape         []int64
	RestoredDType string `json:"restored_dtype"`
	BlockSize     int64
	SHA256        map[string]string
	Path          json.RawMessage
	Optional      bool
}

type hostileCase struct {
	Path   string
	Level  string
	Expect string
	Reason string
	Code   string
	Tensor string
	Policy string
	Result struct {
		DType  string
		SHA256 string
	} `json:"bnb_result"`
	Executes string
}

const goldenDir = "../testdata/golden"

var readManifest = sync.OnceValue(func() *manifest {
	data, err := os.ReadFile(filepath.Join(goldenDir, "manifest.json"))
	if err != nil {
		panic(err)
	}
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		panic(err)
	}
	return m
})

// wild is the folder of other people's files. Tests that read it are skipped
// where it is absent: it is not part of the repository.
func wild(t *testing.T) string {
	dir := wildDir()
	if dir == "" {
		t.Skip("no folder of wild files; NIBBLE_WILD names it")
	}
	return dir
}

// wildDir is wild for tests that go on without it.
func wildDir() string {
	dir := os.Getenv("NIBBLE_WILD")
	if dir == "" {
		dir = "../../shared/wild"
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// sum is the hash of elements as the manifest has it: little-endian, and where
// said so with NaNs made canonical.
func sum(data []byte, dt tensor.DType, canonical bool) string {
	b := make([]byte, len(data))
	tensor.LittleEndian(b, data, dt.WordSize())
	if canonical {
		canonicalNaNs(b, dt)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// canonicalNaNs replaces every NaN of little-endian elements by 0x7fc00000,
// 0x7e00 or 0x7fc0.
func canonicalNaNs(b []byte, dt tensor.DType) {
	nan := map[tensor.DType]struct{ inf, nan uint32 }{
		tensor.F32: {0x7f800000, 0x7fc00000}, tensor.F16: {0x7c00, 0x7e00}, tensor.BF16: {0x7f80, 0x7fc0},
	}[dt]
	size := dt.Size()
	for i := 0; i+size <= len(b); i += size {
		var v uint32
		for k := size - 1; k >= 0; k-- {
			v = v<<8 | uint32(b[i+k])
		}
		if v&(1<<(8*size-1)-1) <= nan.inf {
			continue
		}
		for k := range size {
			b[i+k] = byte(nan.nan >> (8 * k))
		}
	}
}
