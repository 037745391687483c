package mmap_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/mmap"
)

// wantError fails unless err is a *rule.Error of path that says text.
func wantError(t *testing.T, err error, path, text string) {
	t.Helper()
	var e *rule.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a *rule.Error", err)
	}
	if e.Path != path || !strings.Contains(e.Err.Error(), text) {
		t.Errorf("got %q, want path %s and %q", err, path, text)
	}
	if strings.Count(err.Error(), path) > 1 {
		t.Errorf("%q names the path twice", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	files := mmap.NewFiles(0)
	for _, b := range backends {
		_, err := files.Open(dir, b)
		wantError(t, err, dir, "is a directory")

		missing := filepath.Join(dir, "missing")
		_, err = files.Open(missing, b)
		wantError(t, err, missing, "")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing file: %v is not fs.ErrNotExist", err)
		}
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
	_, err := files.Open(dir, mmap.Auto)
	if !errors.Is(err, rule.ErrClosed) {
		t.Errorf("Open after Close: %v", err)
	}
	if err := files.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// A hub cache is symbolic links to blobs. One whose blob was deleted must name
// the blob: that is the file which is missing.
func TestOpenFollowsSymlinks(t *testing.T) {
	path := write(t, page)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	f := open(t, link, mmap.Auto)
	if f.Size() != page || f.Path() != link {
		t.Errorf("size %d path %s", f.Size(), f.Path())
	}
	gone := filepath.Join(t.TempDir(), "gone")
	dangling := filepath.Join(t.TempDir(), "dangling")
	if err := os.Symlink(gone, dangling); err != nil {
		t.Fatal(err)
	}
	_, err := mmap.NewFiles(0).Open(dangling, mmap.Auto)
	wantError(t, err, dangling, gone)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

// Mapping zero bytes is an error of the system; an empty file is not.
func TestEmptyFile(t *testing.T) {
	path := write(t, 0)
	for _, b := range []mmap.Backend{mmap.Auto, mmap.Map, mmap.Pread} {
		f := open(t, path, b)
		var scratch []byte
		p, err := f.Window(0, 0, &scratch)
		if len(p) != 0 || err != nil || f.Size() != 0 || f.Mapped() || f.Why() != "empty file" {
			t.Errorf("%v: %d bytes, error %v, size %d, mapped %v, why %q", b, len(p), err, f.Size(), f.Mapped(), f.Why())
		}
		if err := errors.Join(f.Check(0), f.Advise(mmap.DontNeed, 0, 0)); err != nil || f.CanAdvise() {
			t.Errorf("%v: error %v, can advise %v", b, err, f.CanAdvise())
		}
	}
}

// A header may place a tensor anywhere in a file of any size; only 64-bit
// systems can map this one, and the others can still read it.
func TestSparseFileLargerThan32Bits(t *testing.T) {
	const size = 8 << 30
	path := write(t, 1)
	if err := os.Truncate(path, size); err != nil {
		t.Skip(err)
	}
	f := open(t, path, mmap.Auto)
	if can := math.MaxInt > math.MaxInt32; f.Mapped() != can {
		t.Errorf("mapped %v, why %q", f.Mapped(), f.Why())
	}
	var scratch []byte
	if p, err := f.Window(size-10, 10, &scratch); err != nil || len(p) != 10 {
		t.Errorf("the last bytes: %v", err)
	}
	if f.Mapped() {
		return
	}
	_, err := mmap.NewFiles(0).Open(path, mmap.Map)
	wantError(t, err, path, "more than this system can address")
	_, err = f.Window(0, size, &scratch)
	wantError(t, err, path, "more than this system can address")
}

func TestBackendNames(t *testing.T) {
	for b, want := range map[mmap.Backend]string{mmap.Auto: "auto", mmap.Map: "mmap", mmap.Pread: "pread", 9: "Backend(9)"} {
		if b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
}
