package mmap_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"nibble/internal/rule"
	"nibble/mmap"
)

// pair is two files that share one descriptor: using one closes the other's.
func pair(t *testing.T, b mmap.Backend) (first, second *mmap.File) {
	t.Helper()
	files := mmap.NewFiles(1)
	var opened [2]*mmap.File
	for i := range opened {
		f, err := files.Open(write(t, 2*page), b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Release() })
		opened[i] = f
	}
	return opened[0], opened[1]
}

func TestDescriptorIsReopened(t *testing.T) {
	for _, b := range backends {
		first, second := pair(t, b)
		for range 3 {
			for _, f := range []*mmap.File{first, second} {
				p := make([]byte, 2*page)
				if _, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p, pattern(2*page)) {
					t.Fatalf("%v: %v", b, err)
				}
				if err := f.Check(2 * page); err != nil {
					t.Fatalf("%v: %v", b, err)
				}
			}
		}
	}
}

// Between closing and reopening, the name may have come to mean another file.
// Reading on in that one would mix two checkpoints.
func TestReopenedFileMustBeTheSame(t *testing.T) {
	do := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		off    int64
	}{
		{"replaced", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			do(t, err, os.WriteFile(path+".new", pattern(2*page), 0o600),
				os.Chtimes(path+".new", info.ModTime(), info.ModTime()), os.Rename(path+".new", path))
		}, -1},
		{"touched", func(t *testing.T, path string) {
			do(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
		}, -1},
		{"grown", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			do(t, err, os.Truncate(path, 3*page), os.Chtimes(path, time.Time{}, info.ModTime()))
		}, -1},
		{"shrunk", func(t *testing.T, path string) { do(t, os.Truncate(path, page+3)) }, page + 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Windows neither replaces nor cuts a file that is mapped.
			first, second := pair(t, mmap.Pread)
			c.change(t, first.Path())
			_, err := first.ReadAt(make([]byte, 1), 0)
			wantTruncated(t, err, first.Path(), c.off)
			wantTruncated(t, first.Check(1), first.Path(), c.off)
			if _, err := second.ReadAt(make([]byte, 1), 0); err != nil {
				t.Errorf("the other file: %v", err)
			}
		})
	}
}

func TestReopenedFileIsGone(t *testing.T) {
	first, _ := pair(t, mmap.Pread)
	if err := os.Remove(first.Path()); err != nil {
		t.Fatal(err)
	}
	_, err := first.ReadAt(make([]byte, 1), 0)
	wantError(t, err, first.Path(), "")
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, rule.ErrTruncated) {
		t.Errorf("got %v", err)
	}
}

// An update that renames new shards over old ones is the polite way, and a
// reader that has the old one open is not disturbed.
func TestOpenDescriptorKeepsTheOldFile(t *testing.T) {
	path := write(t, page)
	f := open(t, path, mmap.Pread)
	if err := os.WriteFile(path+".new", make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Skip(err) // Windows
	}
	p := make([]byte, page)
	if _, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p, pattern(page)) {
		t.Errorf("got other bytes, or error %v", err)
	}
	if err := f.Check(page); err != nil {
		t.Error(err)
	}
}

// Leases outlive the store's Close, and so must the files behind them.
func TestRetainedFileOutlivesClose(t *testing.T) {
	for _, b := range backends {
		files := mmap.NewFiles(0)
		f, err := files.Open(write(t, page), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
		var scratch []byte
		if p, err := f.Window(0, page, &scratch); err != nil || !bytes.Equal(p, pattern(page)) {
			t.Errorf("%v: %v", b, err)
		}
		if err := f.Check(page); err != nil {
			t.Errorf("%v: %v", b, err)
		}
		if err := f.Release(); err != nil {
			t.Errorf("%v: %v", b, err)
		}
	}
}

// Under -race: readers, advisers and checkers of more files than descriptors,
// each with a reference of its own while the opener lets go of the first.
func TestConcurrentUse(t *testing.T) {
	const shards, workers = 12, 8
	dir := t.TempDir()
	files := mmap.NewFiles(3)
	var opened []*mmap.File
	for i := range shards {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, pattern(2*page+int64(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := files.Open(path, backends[i%2])
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, f)
	}
	use := func(f *mmap.File, off int64, scratch *[]byte) error {
		var p []byte
		err := mmap.Guard([]*mmap.File{f}, func() {
			p, _ = f.Window(off, 64, scratch)
			if !bytes.Equal(p, pattern(2 * page)[off:off+64]) {
				panic(fmt.Sprintf("%s: other bytes at %d", f.Path(), off))
			}
		})
		var b [16]byte
		_, readErr := f.ReadAt(b[:], off)
		return errors.Join(err, readErr, f.Check(f.Size()), f.Advise(mmap.DontNeed, 0, f.Size()))
	}
	var wg sync.WaitGroup
	for w := range workers {
		for _, f := range opened {
			if !f.Retain() {
				t.Fatal("Retain of an open file")
			}
		}
		wg.Go(func() {
			var scratch []byte
			for i := range 20 * shards {
				f := opened[(i+w)%shards]
				if err := use(f, int64(i*17)%page, &scratch); err != nil {
					t.Error(err)
				}
			}
			for _, f := range opened {
				if err := f.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, f := range opened {
		if err := f.Release(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for _, f := range opened {
		if f.Retain() {
			t.Errorf("%s: a reference is left", f.Path())
		}
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
}
