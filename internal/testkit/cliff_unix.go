//go:build linux || darwin

package testkit

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded returns whole pages, at least n bytes and at least one page, with an
// inaccessible page on either side. Its capacity is its length.
func guarded(tb testing.TB, n int) []byte {
	tb.Helper()
	page := os.Getpagesize()
	size := max(1, (n+page-1)/page) * page
	all, err := unix.Mmap(-1, 0, page+size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		tb.Fatalf("mapping %d bytes between guard pages: %v", size, err)
	}
	tb.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			tb.Errorf("unmapping guarded bytes: %v", err)
		}
	})
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			tb.Fatalf("protecting a guard page: %v", err)
		}
	}
	return all[page : page+size : page+size]
}
