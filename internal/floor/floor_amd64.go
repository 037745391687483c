//go:build !purego

package floor

import "golang.org/x/sys/cpu"

var streams = cpu.X86.HasAVX2
