//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package cache

import "unsafe"

// mapAnon returns n > 0 zero bytes at a multiple of 64. On this system they
// come from the Go heap: unmapAnon only drops the reference, so memory returns
// to the system when the garbage collector gets to it, not at once.
func mapAnon(n int) ([]byte, error) {
	b := make([]byte, n+align-1)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (align - 1))
	return b[off : off+n : off+n], nil
}

func unmapAnon(b []byte) {}

// Populate would back chunk, a part of a fresh buffer, with pages in one call;
// this system has no such call, so it does nothing.
func Populate(chunk []byte) {}
