//go:build unix

package convert_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"nibble/convert"
	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// limitFiles makes every write beyond n bytes of a file fail until the test
// ends, as writes to a full disk do.
func limitFiles(t *testing.T, n uint64) (lift func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	setCur(&limit, n)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
		signal.Reset(unix.SIGXFSZ)
	}
}

// setCur sets the soft limit, whose type is not the same on all systems.
func setCur(l *unix.Rlimit, n uint64) { assign(&l.Cur, n) }

func assign[T ~int64 | ~uint64](to *T, n uint64) { *to = T(n) }

// When the disk is full, wherever in the files that is, nothing is left behind
// and what was to be replaced is whole.
//
// It runs in a process of its own: the limit holds for all files that the test
// writes, its log included.
func TestDiskFull(t *testing.T) {
	if os.Getenv("NIBBLE_TEST_DISK_FULL") == "" {
		if testkit.Emulated() {
			t.Skip("an emulator runs the test, and nothing that the test starts")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
		cmd.Env = append(os.Environ(), "NIBBLE_TEST_DISK_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	st := open(t, single, store.Config{})
	run(t, st, old, convert.Options{DType: tensor.F16})
	before := tree(t, dir)
	for _, out := range []string{"old", "new/er", "new.safetensors"} {
		for n := uint64(0); n < 100_000; n += 7001 {
			lift := limitFiles(t, n)
			_, err := convert.Run(t.Context(), st, filepath.Join(dir, out), convert.Options{Force: true, DType: tensor.F32})
			lift()
			if !errors.Is(err, unix.EFBIG) {
				t.Fatalf("%s, disk full at byte %d: error %v", out, n, err)
			}
			if after := tree(t, dir); !maps.Equal(before, after) {
				t.Fatalf("%s, disk full at byte %d: left %q", out, n, slices.Sorted(maps.Keys(after)))
			}
		}
	}
}
