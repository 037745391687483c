package floor

import "unsafe"

func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%LineSize == 0 }

// Aligned returns n bytes of the Go heap that begin at a cache line. They are
// populated: measuring fresh memory measures the kernel.
func Aligned(n int) []byte {
	b := make([]byte, n+LineSize)
	for i := range b {
		b[i] = 1
	}
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%LineSize:][:n:n]
}
