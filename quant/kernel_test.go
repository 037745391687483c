package quant

import "testing"

// forEachKernel runs a test with every kernel that this machine has.
func forEachKernel(t *testing.T, test func(*testing.T)) {
	test(t)
}
