package suite

import (
	"os"
	"runtime"
	"strings"
)

// cpuName is the processor as the system calls it.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); key == "model name" || key == "Model" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
