//go:build !linux && !darwin

package suite

import (
	"cmp"
	"os"
	"runtime"
)

// cpuName is the processor as the system calls it; Windows has it in the
// environment.
func cpuName() string { return cmp.Or(os.Getenv("PROCESSOR_IDENTIFIER"), runtime.GOARCH) }
