//go:build linux || darwin

package settings

import (
	"math"
	"syscall"
)

// defaultDescriptors is the library's default, which it does not tell: a
// quarter of what this process may have open, and at least 16.
func defaultDescriptors() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return max(16, int(min(r.Cur, math.MaxInt32))/4)
}
