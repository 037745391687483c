package mmap_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nibble/internal/rule"
	"nibble/internal/testkit"
	"nibble/mmap"
)

// descriptors counts this process's open descriptors of files below dir.
func descriptors(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, dir+"/") {
			n++
		}
	}
	return n
}

// shards makes n small files that differ and returns their directory.
func shards(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(shard(dir, i), fmt.Appendf(nil, "%06d", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shard(dir string, i int) string { return filepath.Join(dir, fmt.Sprint(i)) }

func checkShard(t *testing.T, f *mmap.File, i int) {
	t.Helper()
	p := make([]byte, 6)
	if _, err := f.ReadAt(p, 0); err != nil || string(p) != fmt.Sprintf("%06d", i) {
		t.Fatalf("shard %d: %q, error %v", i, p, err)
	}
	if err := f.Check(6); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint of 1,433 shards exists, and a limit of 256 descriptors does.
func TestDescriptorsAreBounded(t *testing.T) {
	const n, limit = 100, 16
	dir := shards(t, n)
	files := mmap.NewFiles(limit)
	var opened []*mmap.File
	for i := range n {
		f, err := files.Open(shard(dir, i), backends[i%2])
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, f)
		if got := descriptors(t, dir); got > limit {
			t.Fatalf("%d descriptors after %d files", got, i+1)
		}
	}
	for i, f := range opened {
		checkShard(t, f, i)
		if got := descriptors(t, dir); got != limit {
			t.Fatalf("%d descriptors, want the %d that may be kept", got, limit)
		}
		want := 1 - i%2 // backends[1] is Pread
		if got := testkit.Mappings(t, f.Path()).Count; got != want {
			t.Errorf("shard %d: %d mappings, want %d", i, got, want)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t, dir); got != 0 {
		t.Errorf("%d descriptors after Close", got)
	}
	for i, f := range opened {
		checkShard(t, f, i) // retained, so still readable
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Mappings(t, f.Path()).Count; got != 0 {
			t.Errorf("shard %d is still mapped after its last Release", i)
		}
	}
	if got := descriptors(t, dir); got != 0 {
		t.Errorf("%d descriptors after the last Release", got)
	}
}

// The process may have used up its descriptors itself, whatever our limit is.
func TestRunningOutOfDescriptors(t *testing.T) {
	const n = 60
	dir := shards(t, n)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Skip(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 40, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	files := mmap.NewFiles(1000)
	defer files.Close()
	for i := range n {
		f, err := files.Open(shard(dir, i), mmap.Auto)
		if err != nil {
			t.Fatalf("file %d: %v", i, err)
		}
		defer f.Release()
		checkShard(t, f, i)
	}
}

func TestOpenRefusesWhatWouldBlockOrAct(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	files := mmap.NewFiles(0)
	for path, text := range map[string]string{fifo: "named pipe", socket: "socket", "/dev/zero": "device", "/dev/null": "device"} {
		for _, b := range backends {
			_, err := files.Open(path, b)
			wantError(t, err, path, text)
		}
	}
}

// sysfs has regular files that cannot be mapped, and that claim 4096 bytes.
func TestFileSystemThatCannotMap(t *testing.T) {
	const path = "/sys/kernel/mm/transparent_hugepage/enabled"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Skip(err)
	}
	_, err = mmap.NewFiles(0).Open(path, mmap.Map)
	wantError(t, err, path, "cannot be mapped")
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("got %v, want ENODEV", err)
	}
	f := open(t, path, mmap.Auto)
	if f.Mapped() || !strings.Contains(f.Why(), "cannot be mapped") {
		t.Errorf("mapped %v, why %q", f.Mapped(), f.Why())
	}
	var scratch []byte
	if p, err := f.Window(0, int64(len(want)), &scratch); err != nil || !bytes.Equal(p, want) {
		t.Errorf("read %q, error %v", p, err)
	}
	_, err = f.Window(0, f.Size(), &scratch)
	wantTruncated(t, err, path, int64(len(want)))
}

// A container may limit the address space to less than the checkpoint.
func TestAddressSpaceLimit(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("TestSparseFileLargerThan32Bits is about this")
	}
	path := write(t, page)
	const size = 1 << 40
	if err := os.Truncate(path, size); err != nil {
		t.Skip(err)
	}
	var statm int64
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	if _, err := fmt.Sscan(string(text), &statm); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &old); err != nil {
		t.Fatal(err)
	}
	soft := uint64(statm*page) + 4<<30 // room for the Go runtime, not for the file
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: soft, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_AS, &old)
	_, err = mmap.NewFiles(0).Open(path, mmap.Map)
	if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("mapping got %v, want ENOMEM", err)
	}
	f := open(t, path, mmap.Auto)
	var scratch []byte
	if p, err := f.Window(0, page, &scratch); err != nil || f.Mapped() || !bytes.Equal(p, pattern(page)) {
		t.Errorf("mapped %v, error %v", f.Mapped(), err)
	}
}

// A reader of headers pays for headers, whatever the size of the file.
func TestOpeningTouchesNothing(t *testing.T) {
	path := synced(t, 16<<20)
	f := open(t, path, mmap.Map)
	if got := testkit.Mappings(t, path); got.Count != 1 || got.Rss != 0 {
		t.Errorf("after Open: %+v", got)
	}
	// The kernel maps cached neighbours of a touched page too, 2 MiB of them
	// where the page cache has huge pages; so the cache must be empty, and
	// read-ahead off.
	if err := errors.Join(f.Advise(mmap.DontNeed, 0, f.Size()), f.Advise(mmap.Random, 0, f.Size())); err != nil {
		t.Fatal(err)
	}
	if p := window(t, f); p[8<<20] != pattern(8<<20 + 1)[8<<20] {
		t.Error("another byte")
	}
	if got := testkit.Mappings(t, path); got.Rss > 64<<10 {
		t.Errorf("one byte brought in %d bytes", got.Rss)
	}
}

// A page of these that cannot be fetched is a fault; a read is an error.
func TestNetworkFileSystems(t *testing.T) {
	// From linux/magic.h and, for Lustre, its lustre_idl.h.
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0x517b: "smb", 0xff534d42: "smb", 0xfe534d42: "smb", 0x65735546: "fuse",
		0x0bd00bd0: "lustre", 0x00c36400: "ceph", 0x01021997: "9p", 0x5346414f: "afs",
		0xef53: "", 0x01021994: "", 0x58465342: "", 0x9123683e: "", 0x794c7630: "", // ext4, tmpfs, xfs, btrfs, overlayfs
	} {
		if got := mmap.NetworkName(magic); got != want {
			t.Errorf("%#x: %q, want %q", magic, got, want)
		}
	}
}

func TestErrClosedAfterRelease(t *testing.T) {
	dir := shards(t, 1)
	files := mmap.NewFiles(0)
	f, err := files.Open(shard(dir, 0), mmap.Pread)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t, dir); got != 0 {
		t.Errorf("%d descriptors after the last Release", got)
	}
	if err := f.Check(1); !errors.Is(err, rule.ErrClosed) {
		t.Errorf("Check: %v", err)
	}
	if got := descriptors(t, dir); got != 0 {
		t.Error("a released file was opened again")
	}
}
