package testkit

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// DropPageCache takes the pages of f, which must be clean and unmapped or
// untouched, out of the page cache. The test is skipped where the system
// cannot.
func DropPageCache(tb testing.TB, f *os.File) {
	tb.Helper()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		tb.Skipf("the page cache cannot be dropped here: %v", err)
	}
}
