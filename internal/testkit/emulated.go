package testkit

import (
	"os"
	"strings"
)

// Emulated reports whether the test runs under an emulator of user mode, as
// `go test -exec qemu-aarch64-static` does. Such an emulator ignores most
// advice about memory, and reports faults without their address (arm64) or with
// a wrong one (s390x: the halves of it are exchanged), so that mmap.Guard has
// less to go by.
func Emulated() bool {
	smaps, err := os.ReadFile("/proc/self/smaps") // of the emulator: it answers for maps only
	return err == nil && strings.Contains(string(smaps), "/qemu-")
}
