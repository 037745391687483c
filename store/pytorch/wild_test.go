package pytorch

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nibble/internal/rule"
)

// rows reads a file of tab-separated values behind its header.
func rows(t testing.TB, path string) [][]string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, strings.Split(s.Text(), "\t"))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out[1:]
}

func ints(t *testing.T, s string) []int64 {
	out := []int64{}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWild compares with what torch read from files of other projects.
func TestWild(t *testing.T) {
	dir := wildDir(t)
	for _, row := range rows(t, filepath.Join(dir, "expected_torch.tsv")) {
		t.Run(row[0]+"/"+row[1], func(t *testing.T) {
			path := filepath.Join(dir, row[0])
			switch row[1] {
			case "ERROR":
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				var e *rule.Error
				if _, err := readBytes(b); !errors.As(err, &e) {
					t.Errorf("error %v", err)
				}
			case "NO_TENSORS":
				if f, _ := mustRead(t, path); len(f.Tensors) > 0 {
					t.Errorf("tensors %v", f.Tensors)
				}
			default:
				testWildTensor(t, path, row)
			}
		})
	}
}

func testWildTensor(t *testing.T, path string, row []string) {
	f, file := mustRead(t, path)
	name := row[1]
	if name == "" {
		name = "tensor"
	}
	i := find(t, f, name)
	ts := f.Tensors[i]
	start, err := strconv.ParseInt(row[5], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if ts.DType.Torch() != row[2] || !slices.Equal(ts.Shape, ints(t, row[3])) || ts.Start != start {
		t.Errorf("%s %v from %d, want %v", ts.DType.Torch(), ts.Shape, ts.Start, row[2:6])
	}
	if !slices.Equal(ts.Strides, ints(t, row[4])) {
		t.Errorf("strides %v, want %s", ts.Strides, row[4])
	}
	if got := sum(gather(t, f, file, i)); got != row[7] {
		t.Errorf("sha256 %s, want %s", got, row[7])
	}
}
