package quant

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// kernel is an implementation of the loops over whole blocks. Every kernel
// gives the same bytes as generic, which is the plain Go of this package and
// the specification.
type kernel uint32

const (
	generic kernel = iota
	avx2
	avx512
	avx512vbmi
)

var kernelNames = [...]string{generic: "generic", avx2: "avx2", avx512: "avx512", avx512vbmi: "avx512vbmi"}

func (k kernel) String() string { return kernelNames[k] }

// kernels are those that this machine has, best first; generic is the last.
var kernels = detect()

// active is the kernel that decodes start with.
var active atomic.Uint32

func init() { active.Store(uint32(kernels[0])) }

func activeKernel() kernel { return kernel(active.Load()) }

// Kernels lists what SetKernels accepts on this machine, besides "auto": best
// first, "generic" last.
func Kernels() []string {
	names := make([]string, len(kernels))
	for i, k := range kernels {
		names[i] = k.String()
	}
	return names
}

// Active is the name of the kernels in use.
func Active() string { return activeKernel().String() }

// SetKernels chooses the kernels that every decode in this process uses from
// now on: one of Kernels, or "auto" for the best. Results do not depend on it.
func SetKernels(name string) error {
	k := kernels[0]
	if name != "auto" {
		i := slices.Index(Kernels(), name)
		if i < 0 {
			return fmt.Errorf("no kernels %q on this machine; want auto or one of %q", name, Kernels())
		}
		k = kernels[i]
	}
	active.Store(uint32(k))
	return nil
}

// streams reports whether a call that writes n bytes should bypass the caches.
func (w Write) streams(k kernel, n int) bool {
	if k == generic {
		return false
	}
	return w == Stream || w == Auto && n >= StreamFrom
}
