//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package cache

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnon returns n > 0 zero bytes of private anonymous memory, not yet backed
// by pages, starting at a page boundary.
func mapAnon(n int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// unmapAnon gives back what mapAnon returned. It fails only on a slice that
// mapAnon did not return, which is a bug.
func unmapAnon(b []byte) {
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))); err != nil {
		panic(os.NewSyscallError("munmap", err))
	}
}

// Populate would back chunk, a part of a fresh buffer, with pages in one call;
// this system has no such call, so it does nothing.
func Populate(chunk []byte) {}
