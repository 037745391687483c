// Command asm writes the amd64 kernels of package quant, or with -floor the
// loops of package floor that they are measured against. generate.sh runs it;
// check.sh shows that its results are current.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	onlyFloor := flag.Bool("floor", false, "write the loops of package floor")
	flag.Parse()
	ConstraintExpr("!purego")
	if *onlyFloor {
		floor()
	} else {
		kernels()
	}
	Generate()
}

func kernels() {
	for _, o := range []output{f16, bf16, f32} {
		fourBitAVX512(o)
		fourBitAVX2(o)
	}
	nestedScalesAVX512()
	lookUp16VBMI()
	for _, o := range []output{f16, bf16} {
		roundTableVBMI(o)
	}
	for _, o := range []output{f16, bf16, f32} {
		blockwiseVBMI(o)
		blockwiseAVX2(o)
		int8Kernel(o, "AVX512")
		int8Kernel(o, "AVX2")
	}
	streamCopy()
}

// output is the type of a kernel's results.
type output struct {
	name string
	size int // bytes
}

var (
	f16  = output{"F16", 2}
	bf16 = output{"BF16", 2}
	f32  = output{"F32", 4}
)

// store writes a vector register: with an ordinary store to any address, or
// past the caches to an aligned one.
type store func(v, m Op)

// ahead is how far, in bytes, kernels that stream fetch codes in advance: the
// hardware prefetcher stops at page ends, and streaming leaves bandwidth.
const ahead = 4096

var constants = map[string]Mem{}

// constantOnce defines width bytes of read-only data, or finds them if another
// kernel has defined them. words are repeated to fill the width.
func constantOnce(name string, width int, words ...uint64) Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; 8*i < width; i++ {
		DATA(8*i, U64(words[i%len(words)]))
	}
	constants[name] = m
	return m
}

func at(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// broadcast fills a register with a 32-bit constant.
func broadcast(v uint32, dst Op) {
	r := GP32()
	MOVL(U32(v), r)
	x := XMM()
	VMOVD(r, x)
	VPBROADCASTD(x, dst)
}
