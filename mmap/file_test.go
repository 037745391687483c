package mmap_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/mmap"
)

// page is the unit in which a file's bytes come and go from a mapping.
var page = int64(os.Getpagesize())

// backends are the two ways to the bytes; most facts hold for both.
var backends = []mmap.Backend{mmap.Map, mmap.Pread}

// pattern is n bytes that differ from page to page and from their neighbours.
func pattern(n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)*31
	}
	return p
}

// write makes a file of n bytes of pattern in a directory of the test's own.
func write(t testing.TB, n int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, pattern(n), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens path through a Files of its own and releases both after the test.
func open(t testing.TB, path string, b mmap.Backend) *mmap.File {
	t.Helper()
	files := mmap.NewFiles(0)
	f, err := files.Open(path, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
		f.Release()
	})
	return f
}

// wantTruncated fails unless err is a truncation of path at off.
func wantTruncated(t *testing.T, err error, path string, off int64) {
	t.Helper()
	var e *rule.Error
	if !errors.As(err, &e) || !errors.Is(err, rule.ErrTruncated) {
		t.Fatalf("got error %v, want a truncation", err)
	}
	if e.Path != path || e.Offset != off || e.Rule != rule.Truncated {
		t.Fatalf("got %+v, want path %s, offset %d", e, path, off)
	}
}

func TestWindowIsTheFile(t *testing.T) {
	size := 3*page + 100
	want := pattern(size)
	path := write(t, size)
	for _, b := range backends {
		t.Run(b.String(), func(t *testing.T) {
			f := open(t, path, b)
			if f.Size() != size || f.Path() != path || f.Mapped() != (b == mmap.Map) || f.Mapped() != (f.Why() == "") {
				t.Fatalf("size %d path %s mapped %v why %q", f.Size(), f.Path(), f.Mapped(), f.Why())
			}
			var scratch []byte
			for _, r := range [][2]int64{{0, size}, {0, 0}, {size, 0}, {1, 7}, {page - 1, 2}, {size - 1, 1}, {page, 2 * page}} {
				got, err := f.Window(r[0], r[1], &scratch)
				if err != nil {
					t.Fatalf("Window(%d, %d): %v", r[0], r[1], err)
				}
				if !bytes.Equal(got, want[r[0]:r[0]+r[1]]) {
					t.Errorf("Window(%d, %d) differs from the file", r[0], r[1])
				}
				if cap(got) != len(got) {
					t.Errorf("Window(%d, %d): append would write beyond the window", r[0], r[1])
				}
			}
		})
	}
}

// A range comes from a header, so it is a claim: no sum of offset and length
// may wrap around and pass.
func TestWindowChecksBounds(t *testing.T) {
	path := write(t, page)
	for _, b := range backends {
		f := open(t, path, b)
		var scratch []byte
		for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, page + 1}, {page, 1}, {page + 1, 0}, {1, page},
			{1 << 62, 1 << 62}, {1<<63 - 1, 1<<63 - 1}, {1<<63 - 1, 1}, {0, 1<<63 - 1}, {1, 1<<63 - 1}} {
			if _, err := f.Window(r[0], r[1], &scratch); err == nil || errors.Is(err, rule.ErrTruncated) {
				t.Errorf("%v: Window(%d, %d): got error %v", b, r[0], r[1], err)
			}
			if err := f.Advise(mmap.WillNeed, r[0], r[1]); err == nil {
				t.Errorf("%v: Advise(%d, %d): no error", b, r[0], r[1])
			}
		}
		if scratch != nil {
			t.Errorf("%v: a bad range made the scratch buffer grow", b)
		}
	}
}

func TestWindowReusesScratch(t *testing.T) {
	f := open(t, write(t, 1000), mmap.Pread)
	scratch := make([]byte, 0, 600)
	first := &scratch[:1][0]
	p, err := f.Window(10, 600, &scratch)
	if err != nil || &p[0] != first {
		t.Errorf("600 bytes do not use the 600 there are (error %v)", err)
	}
	if p, err = f.Window(10, 601, &scratch); err != nil || &p[0] == first || cap(scratch) < 601 {
		t.Errorf("601 bytes: capacity %d, error %v", cap(scratch), err)
	}
}

// ReadAt is an io.ReaderAt, so that archive/zip and friends can use it.
func TestReadAtFollowsReaderAt(t *testing.T) {
	const size = 5000
	want := pattern(size)
	path := write(t, size)
	sources := map[string]*mmap.File{
		"map":      open(t, path, mmap.Map),
		"pread":    open(t, path, mmap.Pread),
		"ReaderAt": mmap.NewReaderAt("memory", bytes.NewReader(want), size),
	}
	for name, f := range sources {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()+10))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("read %d bytes, error %v", len(got), err)
			}
			for _, c := range []struct {
				off int64
				len int
				n   int
				err error
			}{{0, 10, 10, nil}, {4990, 10, 10, nil}, {4990, 11, 10, io.EOF}, {5000, 1, 0, io.EOF}, {5000, 0, 0, nil}, {1 << 62, 1, 0, io.EOF}} {
				n, err := f.ReadAt(make([]byte, c.len), c.off)
				if n != c.n || err != c.err {
					t.Errorf("ReadAt of %d at %d: %d, %v; want %d, %v", c.len, c.off, n, err, c.n, c.err)
				}
			}
			if _, err := f.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
				t.Errorf("negative offset: error %v", err)
			}
		})
	}
}

func TestReaderAtThatEndsEarly(t *testing.T) {
	f := mmap.NewReaderAt("name", strings.NewReader("0123456789"), 100)
	if f.Mapped() || f.Why() == "" || f.Path() != "name" || f.Size() != 100 || f.CanAdvise() {
		t.Errorf("mapped %v why %q path %q size %d advise %v", f.Mapped(), f.Why(), f.Path(), f.Size(), f.CanAdvise())
	}
	if err := f.Check(100); err != nil {
		t.Errorf("Check asks a source that cannot answer: %v", err)
	}
	if err := f.Advise(mmap.DontNeed, 0, 100); err != nil {
		t.Errorf("Advise: %v", err)
	}
	var scratch []byte
	_, err := f.Window(4, 20, &scratch)
	wantTruncated(t, err, "name", 10)

	broken := errors.New("broken wire")
	f = mmap.NewReaderAt("name", failing{broken}, 100)
	if _, err = f.Window(4, 20, &scratch); !errors.Is(err, broken) || errors.Is(err, rule.ErrTruncated) {
		t.Errorf("an error of the source came back as %v", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReferences(t *testing.T) {
	path := write(t, page)
	files := mmap.NewFiles(0)
	f, err := files.Open(path, mmap.Map)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Retain() {
		t.Fatal("Retain of an open file")
	}
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	if p, err := f.Window(0, 1, nil); err != nil || p[0] != pattern(1)[0] {
		t.Fatalf("the file ended before its last Release: %v", err)
	}
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	if f.Retain() {
		t.Error("Retain brought back a file whose mapping is gone")
	}
	if err := f.Release(); !errors.Is(err, rule.ErrClosed) {
		t.Errorf("one Release too many: %v", err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, rule.ErrClosed) {
		t.Errorf("ReadAt after the last Release: %v", err)
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
}
