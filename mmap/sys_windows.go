package mmap

import (
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const openFlags = 0

// networkFS says whether file is on a share.
func networkFS(file *os.File) string {
	path, err := filepath.Abs(file.Name())
	if err != nil {
		return ""
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil || windows.GetDriveType(root) != windows.DRIVE_REMOTE {
		return ""
	}
	return "share"
}

const (
	haveMadvise = false
	haveFadvise = false
)

func madvise([]byte, Advice) error                 { return nil }
func fadvise(*os.File, Advice, int64, int64) error { return nil }

// descriptorLimit is how many handles are worth keeping; Windows has no limit
// that a process could meet.
func descriptorLimit() int { return math.MaxInt16 }
