package mmap_test

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nibble/internal/testkit"
	"nibble/mmap"
)

// touch reads a byte of every page.
func touch(p []byte) {
	for i := int64(0); i < int64(len(p)); i += page {
		sink ^= p[i]
	}
}

// Pages at either end of a tensor belong to its neighbours as well.
func TestDontNeedRoundsInward(t *testing.T) {
	const pages = 16
	size := pages*page - 100 // the last page is the file's last, and partial
	path := write(t, size)
	for _, c := range []struct{ off, n, freed int64 }{
		{0, size, pages},
		{page, page, 1},
		{1, 3*page - 1, 2},         // pages 1 and 2; page 0 is shared
		{1, 3*page - 2, 1},         // page 2 is shared too
		{1, page, 0},               // no page is whole
		{1, 2*page - 2, 0},         // nor here
		{size - page, page, 1},     // up to the end: the last page is whole
		{size - page, page - 1, 0}, // one byte of it is another's
		{5, 0, 0},
	} {
		f := open(t, path, mmap.Map)
		if !f.CanAdvise() {
			t.Fatal("advice works on Linux")
		}
		p := window(t, f)
		touch(p)
		if got := testkit.Mappings(t, path).Rss; got != pages*page {
			t.Fatalf("after touching all: %d bytes", got)
		}
		if err := f.Advise(mmap.DontNeed, c.off, c.n); err != nil {
			t.Fatal(err)
		}
		if got := pages - testkit.Mappings(t, path).Rss/page; got != c.freed {
			t.Errorf("DontNeed(%d, %d) gave back %d pages, want %d", c.off, c.n, got, c.freed)
		}
		if !bytes.Equal(p, pattern(size)) {
			t.Errorf("DontNeed(%d, %d) changed the bytes", c.off, c.n)
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// Advice about a part would split the mapping, of which a process has 65,530.
func TestPatternIsForTheWholeMapping(t *testing.T) {
	if testkit.Emulated() {
		t.Skip("the emulator keeps advice to itself")
	}
	path := write(t, 8*page)
	f := open(t, path, mmap.Map)
	for a, flag := range map[mmap.Advice]string{mmap.Random: "rr", mmap.Sequential: "sr"} {
		if err := f.Advise(a, 2*page, page); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Mappings(t, path); got.Count != 1 || !got.Has(flag) {
			t.Errorf("got %+v, want one mapping with %s", got, flag)
		}
	}
	if err := f.Advise(mmap.WillNeed, page+1, 10); err != nil {
		t.Error(err)
	}
}

// synced makes a file whose pages the page cache may drop, on a file system
// that has one.
func synced(t *testing.T, size int64) string {
	t.Helper()
	path := write(t, size)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Skip(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || int64(st.Type) == unix.TMPFS_MAGIC {
		t.Skip("tmpfs: the page cache is all there is")
	}
	return path
}

// cached counts the pages of path in the page cache, through a mapping made and
// removed for the question.
func cached(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := mmap.NewFiles(0).Open(path, mmap.Map)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	p := window(t, f)
	vec := make([]byte, (len(p)+int(page)-1)/int(page))
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		t.Skip(errno)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

// SourcePages=drop promises that a decoded checkpoint does not fill the page
// cache. The kernel keeps what is still mapped: madvise has to come first.
func TestDontNeedReachesThePageCache(t *testing.T) {
	for _, b := range backends {
		const size = 4 << 20
		path := synced(t, size)
		f := open(t, path, b)
		scratch := make([]byte, size)
		p, err := f.Window(0, size, &scratch)
		if err != nil {
			t.Fatal(err)
		}
		touch(p)
		before := cached(t, path)
		if before != int(size/page) {
			t.Skipf("%d pages cached of a file just written", before)
		}
		if err := f.Advise(mmap.DontNeed, 0, size); err != nil {
			t.Fatal(err)
		}
		if after := cached(t, path); after > before/8 {
			t.Errorf("%v: %d of %d pages are still cached", b, after, before)
		}
	}
}

// The pattern belongs to the descriptor, and goes with it; the reader must not
// notice that its descriptor had to make room for another.
func TestPatternSurvivesReopening(t *testing.T) {
	const size = 4 << 20
	brought := func(random bool) int {
		path := synced(t, size)
		files := mmap.NewFiles(1)
		f, err := files.Open(path, mmap.Pread)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		if random {
			if err := f.Advise(mmap.Random, 0, size); err != nil {
				t.Fatal(err)
			}
		}
		other, err := files.Open(write(t, 1), mmap.Pread) // takes the one place
		if err != nil {
			t.Fatal(err)
		}
		defer other.Release()
		if err := f.Advise(mmap.DontNeed, 0, size); err != nil {
			t.Fatal(err)
		}
		if n := cached(t, path); n != 0 {
			t.Skipf("%d pages cannot be dropped here", n)
		}
		for i := range int64(8) {
			if _, err := f.ReadAt(make([]byte, page), i*page); err != nil {
				t.Fatal(err)
			}
		}
		return cached(t, path)
	}
	ahead, random := brought(false), brought(true)
	if ahead < 16 {
		t.Skipf("8 pages read brought in %d: no read-ahead here", ahead)
	}
	if random > 8 {
		t.Errorf("8 pages read brought in %d with Random, %d without", random, ahead)
	}
}
