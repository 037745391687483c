//go:build linux || darwin

package testkit_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"nibble/internal/testkit"
)

// faults reports whether reading the byte at p faults.
func faults(p unsafe.Pointer) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			_, fault = r.(runtime.Error)
		}
	}()
	sink = *(*byte)(p)
	return false
}

var sink byte

// Kernels are tested on these buffers because a guard sits exactly one byte
// beyond the end that the kernel may touch; a guard one byte off proves nothing.
func TestGuardsTouchTheBuffer(t *testing.T) {
	page := os.Getpagesize()
	for _, n := range []int{1, 3, 64, page - 1, page, page + 1, 3 * page} {
		back := testkit.Cliff(t, n)
		front := testkit.CliffFront(t, n)
		for _, b := range [][]byte{back, front} {
			if len(b) != n || cap(b) != n {
				t.Fatalf("n=%d: len %d cap %d", n, len(b), cap(b))
			}
			for i := range b {
				if b[i] != 0 {
					t.Fatalf("n=%d: byte %d is not zero", n, i)
				}
				b[i] = byte(i)
			}
		}
		if !faults(unsafe.Add(unsafe.Pointer(&back[0]), n)) {
			t.Errorf("n=%d: no fault after the end of Cliff", n)
		}
		if !faults(unsafe.Add(unsafe.Pointer(&front[0]), -1)) {
			t.Errorf("n=%d: no fault before the start of CliffFront", n)
		}
		if faults(unsafe.Pointer(&back[0])) || faults(unsafe.Pointer(&front[0])) {
			t.Errorf("n=%d: the first byte faults", n)
		}
	}
}

func TestEmpty(t *testing.T) {
	if b := testkit.Cliff(t, 0); len(b) != 0 || cap(b) != 0 {
		t.Errorf("Cliff: len %d cap %d", len(b), cap(b))
	}
	if b := testkit.CliffFront(t, 0); len(b) != 0 || cap(b) != 0 {
		t.Errorf("CliffFront: len %d cap %d", len(b), cap(b))
	}
}
