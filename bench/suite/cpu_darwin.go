package suite

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// cpuName is the processor as the system calls it.
func cpuName() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return runtime.GOARCH
	}
	return name
}
