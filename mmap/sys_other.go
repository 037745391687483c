//go:build !linux && !darwin && !windows

package mmap

import "os"

const (
	openFlags   = 0
	haveMadvise = false
	haveFadvise = false
)

func networkFS(*os.File) string                    { return "" }
func madvise([]byte, Advice) error                 { return nil }
func fadvise(*os.File, Advice, int64, int64) error { return nil }

// descriptorLimit makes NewFiles keep the least that it keeps by default.
func descriptorLimit() int { return 0 }
