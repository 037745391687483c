//go:build unix

package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the CPU time of all threads, theirs and the kernel's on their
// behalf.
func processTime() (time.Duration, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
