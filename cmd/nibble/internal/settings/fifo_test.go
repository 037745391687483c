//go:build unix

package settings

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Reading a pipe that nobody writes to would wait forever, and a device never
// ends.
func TestReadFileOfOtherKinds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "nibble.yaml")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{fifo, "/dev/zero"} {
		if _, err := readFile(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
