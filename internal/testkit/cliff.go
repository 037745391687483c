// Package testkit holds fixtures that the tests of several rooms share. It is
// imported by tests only.
package testkit

import "testing"

// Cliff returns n bytes whose end is a guard page: reading or writing the byte
// after the last one faults, and the fault kills the test binary. The bytes
// are zero, writable, outside the Go heap, and live until tb ends; cap is n.
//
// For a buffer that ends at the cliff and is misaligned, take n odd or slice
// from the front: Cliff(tb, n+3)[3:].
//
// Where the system has no page protection that Go can set, Cliff is a plain
// slice: the test still runs and only loses its guard.
func Cliff(tb testing.TB, n int) []byte {
	tb.Helper()
	region := guarded(tb, n)
	return region[len(region)-n:]
}

// CliffFront is Cliff with the guard page directly before the first byte. The
// bytes start at a page boundary.
func CliffFront(tb testing.TB, n int) []byte {
	tb.Helper()
	return guarded(tb, n)[:n:n]
}
