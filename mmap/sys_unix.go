//go:build linux || darwin

package mmap

import (
	"math"

	"golang.org/x/sys/unix"
)

// openFlags keep open from waiting for the writer of a FIFO.
const openFlags = unix.O_NONBLOCK

const haveMadvise = true

// madvise advises about a part of a mapping that starts at a page boundary. It
// is madvise and not posix_madvise, whose DONTNEED does nothing on Linux.
func madvise(b []byte, a Advice) error {
	advice := unix.MADV_NORMAL
	switch a {
	case WillNeed:
		advice = unix.MADV_WILLNEED
	case DontNeed:
		advice = unix.MADV_DONTNEED
	case Random:
		advice = unix.MADV_RANDOM
	case Sequential:
		advice = unix.MADV_SEQUENTIAL
	}
	return unix.Madvise(b, advice)
}

// descriptorLimit is how many descriptors the process may have open.
func descriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return int(min(r.Cur, math.MaxInt32)) // "no limit" is larger than an int
}
