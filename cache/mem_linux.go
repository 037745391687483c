package cache

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnon returns n > 0 zero bytes of private anonymous memory, not yet backed
// by pages, starting at a page boundary, of hugeSize and more at that of a huge
// page. The pointer calls of package unix are used because Mmap and Munmap hold a
// process-wide lock during the system call, and unmapping a large tensor takes
// milliseconds.
func mapAnon(n int) ([]byte, error) {
	b, err := mapPages(n)
	if err != nil || n < hugeSize {
		return b, err
	}
	// The kernel places what is no multiple of a huge page anywhere, so that
	// ranges of the size of one would share it.
	if toHugePage(b) != 0 && n <= math.MaxInt-hugePage {
		if wide, err := mapPages(n + hugePage); err == nil {
			unmapAnon(b)
			b = trim(wide, toHugePage(wide), n)
		}
	}
	// Advice only: a kernel without huge pages gives small ones.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// trim gives back all but the n bytes at off.
func trim(b []byte, off, n int) []byte {
	for _, rest := range [][]byte{b[:off], b[off+n:]} {
		if len(rest) > 0 {
			unmapAnon(rest)
		}
	}
	return b[off : off+n : off+n]
}

// toHugePage is the number of bytes from the first of b to the start of a huge
// page.
func toHugePage(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
}

// hugePage is the size of a huge page of x86-64, and of arm64 with pages of
// 4 KiB. Others have larger ones, which are not aligned for.
const hugePage = 2 << 20

func mapPages(n int) ([]byte, error) {
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

// Populate makes the kernel back chunk, a part of a fresh buffer, with writable
// pages in one call instead of a fault for each. The worker that fills a chunk
// populates it, some MiB at a time, so that the pages are cleared by all workers
// and are still in its processor's cache. It is advice: without support by the
// kernel (Linux 5.14) the pages come with the faults. chunk is not otherwise
// changed.
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
