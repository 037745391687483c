package cache

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnon returns n > 0 zero bytes of private anonymous memory, not yet backed
// by pages, starting at a page boundary. The pointer calls of package unix are
// used because Mmap and Munmap hold a process-wide lock during the system call,
// and unmapping a large tensor takes milliseconds.
func mapAnon(n int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := unsafe.Slice((*byte)(p), n)
	if n >= hugeSize {
		// Advice only: a kernel without huge pages gives small ones.
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
	return b, nil
}

// unmapAnon gives back what mapAnon returned. It fails only on a slice that
// mapAnon did not return, which is a bug.
func unmapAnon(b []byte) {
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))); err != nil {
		panic(os.NewSyscallError("munmap", err))
	}
}

// Populate makes the kernel back chunk, a part of a fresh buffer, with writable
// pages in one call instead of a fault for each. The worker that fills a chunk
// populates it, at most 2 MiB at a time, so that the pages are cleared by all
// workers and are still in its processor's cache. It is advice: without support
// by the kernel (Linux 5.14) the pages come with the faults. chunk is not
// otherwise changed.
func Populate(chunk []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(chunk)))
	mask := uintptr(os.Getpagesize() - 1)
	// From the page in which chunk starts, which belongs to the same buffer, to
	// the last full page: the next chunk begins with the rest.
	lo, hi := p&^mask, (p+uintptr(len(chunk)))&^mask
	if hi <= lo {
		return
	}
	start := unsafe.Add(unsafe.Pointer(unsafe.SliceData(chunk)), -int(p-lo))
	_ = unix.Madvise(unsafe.Slice((*byte)(start), hi-lo), unix.MADV_POPULATE_WRITE)
}
