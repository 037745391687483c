//go:build !linux

package testkit

import (
	"os"
	"testing"
)

// DropPageCache takes the pages of f out of the page cache. The test is skipped
// where the system cannot.
func DropPageCache(tb testing.TB, f *os.File) {
	tb.Helper()
	tb.Skip("the page cache cannot be dropped here")
}
