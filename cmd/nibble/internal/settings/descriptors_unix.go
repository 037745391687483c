//go:build linux || darwin

package settings

import (
	"math"

	"golang.org/x/sys/unix"
)

// defaultDescriptors is the library's default, which it does not tell: a
// quarter of what this process may have open, and at least 16.
func defaultDescriptors() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return max(16, int(min(r.Cur, math.MaxInt32))/4)
}
