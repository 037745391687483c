//go:build linux || darwin

package mmap_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
	"unsafe"

	"nibble/internal/rule"
	"nibble/internal/testkit"
	"nibble/mmap"
)

// sink keeps the compiler from dropping a read whose fault is the test.
var sink byte

// needFaults skips the test where an emulator gives faults a wrong address.
func needFaults(t *testing.T) {
	t.Helper()
	if runtime.GOARCH == "s390x" && testkit.Emulated() {
		t.Skip("the emulator gets the address of a fault wrong")
	}
}

// needAddress skips the test where an emulator gives faults no right address.
func needAddress(t *testing.T) {
	t.Helper()
	if testkit.Emulated() {
		t.Skip("the emulator does not give the address of a fault")
	}
}

// window is the whole mapping of f.
func window(t *testing.T, f *mmap.File) []byte {
	t.Helper()
	p, err := f.Window(0, f.Size(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func TestGuardTurnsFaultIntoTruncation(t *testing.T) {
	needFaults(t)
	size := 8*page + 100
	buf := make([]byte, 2*page)
	for _, c := range []struct {
		name  string
		touch func(p []byte)
		off   int64 // or -1: somewhere beyond the new end
	}{
		{"load", func(p []byte) { sink = p[5*page] }, 5 * page},
		{"last byte's page", func(p []byte) { sink = p[8*page] }, 8 * page},
		// These run in assembly, as the decoders do. copy reads the end first.
		{"copy", func(p []byte) { copy(buf, p[4*page:]) }, -1},
		{"search", func(p []byte) { bytes.IndexByte(p[4*page:], 77) }, 4 * page},
		{"hash", func(p []byte) { sha256.Sum256(p) }, 4 * page},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, size)
			other := open(t, write(t, size), mmap.Map)
			f := open(t, path, mmap.Map)
			p := window(t, f)
			truncate(t, path, 4*page)
			err := mmap.Guard([]*mmap.File{other, f}, func() { c.touch(p) })
			if testkit.Emulated() {
				c.off = 4 * page // without an address: where the file ends now
			}
			var e *rule.Error
			if c.off < 0 && errors.As(err, &e) && e.Offset >= 4*page && e.Offset < 6*page {
				c.off = e.Offset
			}
			wantTruncated(t, err, path, c.off)
		})
	}
}

// s390x and emulators report the page, these two the byte.
func TestGuardKnowsTheByte(t *testing.T) {
	needAddress(t)
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "386" {
		t.Skip("the address of a fault is exact only on x86")
	}
	path := write(t, 4*page)
	f := open(t, path, mmap.Map)
	p := window(t, f)
	truncate(t, path, page)
	err := mmap.Guard([]*mmap.File{f}, func() { sink = p[2*page+123] })
	wantTruncated(t, err, path, 2*page+123)
}

func TestGuardPassesResultThrough(t *testing.T) {
	f := open(t, write(t, page), mmap.Map)
	p := window(t, f)
	ran := false
	if err := mmap.Guard([]*mmap.File{f}, func() { ran = p[1] == pattern(2)[1] }); err != nil || !ran {
		t.Errorf("ran %v, error %v", ran, err)
	}
}

// The setting belongs to the goroutine: left on, a later wild write of the
// caller's would be a panic that something may recover from.
func TestGuardRestoresPanicOnFault(t *testing.T) {
	needFaults(t)
	path := write(t, 2*page)
	f := open(t, path, mmap.Map)
	p := window(t, f)
	truncate(t, path, 0)
	for _, before := range []bool{false, true} {
		original := debug.SetPanicOnFault(before)
		err := mmap.Guard([]*mmap.File{f}, func() { sink = p[0] })
		after := debug.SetPanicOnFault(original)
		if after != before || err == nil {
			t.Errorf("was %v, is %v after a fault (error %v)", before, after, err)
		}
	}
}

// panicOf is what fn panics with.
func panicOf(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

func TestGuardLeavesOtherPanicsAlone(t *testing.T) {
	beyond := func(p []byte) { sink = *(*byte)(unsafe.Add(unsafe.Pointer(&p[0]), len(p))) }
	before := testkit.Cliff(t, 16) // Linux places mappings downwards: one above ours,
	path := write(t, 4*page)
	short := open(t, path, mmap.Map)
	window(t, short)
	truncate(t, path, page)
	path = write(t, page)
	unmapped := open(t, path, mmap.Pread)
	truncate(t, path, 0)
	whole := open(t, write(t, page), mmap.Map)
	readOnly := window(t, whole)
	after := testkit.Cliff(t, 16) // and one below
	own := errors.New("own")
	var empty []int
	elsewhere := []*mmap.File{short}
	if testkit.Emulated() {
		elsewhere = nil // without an address, only the short file can be meant
	}

	for _, c := range []struct {
		name  string
		files []*mmap.File
		fn    func()
	}{
		{"a value", []*mmap.File{short}, func() { panic(own) }},
		{"index out of range, file short", []*mmap.File{short}, func() { empty[len(empty)]++ }},
		{"nil dereference, file whole", []*mmap.File{whole}, func() { var p *int; *p = 1 }},
		{"nil dereference, short file not mapped", []*mmap.File{unmapped}, func() { var p *int; *p = 1 }},
		{"fault elsewhere, file short", elsewhere, func() { beyond(before) }},
		{"fault elsewhere, below", elsewhere, func() { beyond(after) }},
		{"a file that is not named", elsewhere, func() { readOnly[0] = 1 }},
		{"no files", nil, func() { readOnly[0] = 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var original any
			got := panicOf(func() {
				mmap.Guard(c.files, func() {
					defer func() {
						original = recover()
						panic(original)
					}()
					c.fn()
				})
			})
			if got == nil || got != original {
				t.Errorf("panicked with %v, want the original %v", got, original)
			}
		})
	}
}

// A write into a mapping faults like a read that the disk failed, and is an
// error for the same reason: it does not end the process that serves others.
// But the file is not blamed.
func TestGuardWholeFile(t *testing.T) {
	needAddress(t)
	path := write(t, 2*page)
	f := open(t, path, mmap.Map)
	p := window(t, f)
	err := mmap.Guard([]*mmap.File{f}, func() { p[page] = 1 })
	wantError(t, err, path, "a file that is whole")
	var e *rule.Error
	if errors.As(err, &e) && (e.Rule != "" || e.Offset != page) {
		t.Errorf("got rule %q, offset %d", e.Rule, e.Offset)
	}
}

// Emulators of arm64 give no address, and the runtime then panics as for a nil
// dereference. What the file system says decides.
func TestGuardWithoutAddress(t *testing.T) {
	path := write(t, 4*page)
	f := open(t, path, mmap.Map)
	truncate(t, path, page+5)
	err := mmap.Guard([]*mmap.File{f}, func() { var p *int; *p = 1 })
	wantTruncated(t, err, path, page+5)
}

// `cp new old` cuts the file and writes it again: by the time anyone asks, it
// has its old size, and only its time of modification tells.
func TestGuardFileThatGrewBack(t *testing.T) {
	needAddress(t)
	path := write(t, 4*page)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	f := open(t, path, mmap.Map)
	p := window(t, f)
	err := mmap.Guard([]*mmap.File{f}, func() {
		truncate(t, path, 0)
		defer truncate(t, path, 4*page)
		sink = p[2*page]
	})
	wantTruncated(t, err, path, 2*page)
}

// A decode is guarded in each of its ranges, so the guard is on the hot path.
func TestGuardDoesNotAllocate(t *testing.T) {
	f := open(t, write(t, page), mmap.Map)
	p := window(t, f)
	files := []*mmap.File{f}
	var sum byte
	if n := testing.AllocsPerRun(100, func() {
		if err := mmap.Guard(files, func() { sum += p[0] }); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	sink = sum
}

// The kernel shows zeros after the end in the last page that is left, and no
// fault: this is why Check exists.
func TestCheckFindsWhatGuardCannot(t *testing.T) {
	size := 2 * page
	path := write(t, size)
	f := open(t, path, mmap.Map)
	p := window(t, f)
	if err := f.Check(size); err != nil {
		t.Fatal(err)
	}
	cut := page + 10
	truncate(t, path, cut)
	if err := mmap.Guard([]*mmap.File{f}, func() { sink = p[cut+1] }); err != nil || sink != 0 {
		t.Fatalf("byte %d, error %v: the premise does not hold", sink, err)
	}
	wantTruncated(t, f.Check(size), path, cut)
	wantTruncated(t, f.Check(cut+1), path, cut)
	if err := f.Check(cut); err != nil {
		t.Errorf("the bytes that are left: %v", err)
	}
}

func TestPreadOfTruncatedFile(t *testing.T) {
	for _, b := range backends {
		path := write(t, 2*page)
		f := open(t, path, b)
		truncate(t, path, page+10)
		n, err := f.ReadAt(make([]byte, 100), page)
		if n != 10 {
			t.Errorf("%v: read %d bytes, want the 10 that are left", b, n)
		}
		wantTruncated(t, err, path, page+10)
		_, err = f.ReadAt(make([]byte, 5), page+50)
		wantTruncated(t, err, path, page+50)
		wantTruncated(t, f.Check(2*page), path, page+10)
	}
	path := write(t, 2*page)
	f := open(t, path, mmap.Pread)
	truncate(t, path, 10)
	scratch := make([]byte, 20)
	_, err := f.Window(0, 20, &scratch)
	wantTruncated(t, err, path, 10)
}

func BenchmarkGuard(b *testing.B) {
	f := open(b, write(b, page), mmap.Map)
	files := []*mmap.File{f}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := mmap.Guard(files, func() { n++ }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	f := open(b, write(b, page), mmap.Map)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Check(page); err != nil {
			b.Fatal(err)
		}
	}
}
