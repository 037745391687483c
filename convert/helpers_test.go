package convert_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"nibble/convert"
	"nibble/store"
	"nibble/tensor"
)

const goldenDir = "../testdata/golden"

// golden is what the manifest of the golden vectors says, written by the
// reference implementation.
type golden struct {
	Cases []struct {
		Path         string
		NaNCanonical bool `json:"nan_canonical"`
		Tensors      []struct {
			Name          string
			Path          json.RawMessage
			RestoredDType string `json:"restored_dtype"`
			SHA256        map[string]string
		}
	}
}

var readManifest = sync.OnceValue(func() (g golden) {
	data, err := os.ReadFile(filepath.Join(goldenDir, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		panic(err)
	}
	return g
})

func open(t testing.TB, path string, cfg store.Config, opts ...store.Option) *store.Store {
	t.Helper()
	st, err := store.Open(context.Background(), path, append(opts, store.WithConfig(cfg))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// sum is dtype, shape and hash of a tensor's little-endian elements.
func sum(t testing.TB, h *store.Tensor, dt tensor.DType) string {
	t.Helper()
	ctx := context.Background()
	info, err := h.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if dt, err = h.Decodes(ctx, dt); err != nil {
		t.Fatal(err)
	}
	s := sha256.New()
	for tile, err := range h.Tiles(ctx, dt, 0) {
		if err != nil {
			t.Fatal(err)
		}
		tensor.LittleEndian(tile.Data, tile.Data, tile.DType.WordSize())
		s.Write(tile.Data)
	}
	return dt.String() + " " + info.Shape.String() + " " + hex.EncodeToString(s.Sum(nil))
}

// sameTensors checks that out, reopened, holds every tensor of st decoded to
// dt, and none besides.
func sameTensors(t *testing.T, st *store.Store, out string, dt tensor.DType) {
	t.Helper()
	got := open(t, out, store.Config{})
	n := 0
	for h := range st.Tensors() {
		n++
		g, err := got.StoredTensor(h.Name())
		if err != nil {
			t.Error(err)
			continue
		}
		if want, have := sum(t, h, dt), sum(t, g, tensor.Stored); have != want {
			t.Errorf("%q is %s, want %s", h.Name(), have, want)
		}
	}
	if stored := len(slices.Collect(got.StoredTensors())); stored != n || got.Len() != n {
		t.Errorf("%d tensors, %d of them logical; the source has %d", stored, got.Len(), n)
	}
	if notes := got.Notes(); notes != nil {
		t.Errorf("notes about the output: %q", notes)
	}
}

// tree lists all that is below dir, with the contents of files.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || d.IsDir() {
			all[rel] = "folder"
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all[rel] = "link to " + target
			return err
		}
		data, err := os.ReadFile(path)
		all[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func run(t testing.TB, st *store.Store, out string, o convert.Options) convert.Report {
	t.Helper()
	r, err := convert.Run(context.Background(), st, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wild is the folder of other people's files. Tests that read it are skipped
// where it is absent: it is not part of the repository.
func wild(t *testing.T) string {
	dir := os.Getenv("NIBBLE_WILD")
	if dir == "" {
		dir = "../../shared/wild"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no folder of wild files; NIBBLE_WILD names it")
	}
	return dir
}

// writeFile writes a file and the folders above it.
func writeFile(t testing.TB, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies the files of a folder.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
