//go:build !linux && !darwin

package testkit

import "testing"

// guarded returns n plain bytes.
func guarded(tb testing.TB, n int) []byte {
	tb.Helper()
	return make([]byte, n)
}
