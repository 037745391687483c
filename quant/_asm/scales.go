package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// nestedScalesAVX512 keeps the whole map in sixteen registers. Five bits of a
// code choose within a pair of them, three more among the eight pairs.
func nestedScalesAVX512() {
	TEXT("nestedScalesAVX512", NOSPLIT, "func(dst *float32, codes *byte, codeMap *[256]float32, scale, offset float32, n int)")
	Pragma("noescape")
	Doc("nestedScalesAVX512 computes n scales, a multiple of 16, of one nested block: map[code]*scale + offset, in two roundings.")
	dst, codes, codeMap, n := GP64(), GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("codeMap"), codeMap)
	Load(Param("n"), n)
	scale, offset := ZMM(), ZMM()
	VBROADCASTSS(NewParamAddr("scale", 24), scale)
	VBROADCASTSS(NewParamAddr("offset", 28), offset)
	var regs [16]VecVirtual
	for i := range regs {
		regs[i] = ZMM()
		VMOVUPS(at(codeMap, 64*i), regs[i])
	}
	bits := [3]VecVirtual{ZMM(), ZMM(), ZMM()}
	for i, b := range bits {
		broadcast(32<<i, b)
	}
	TESTQ(n, n)
	JZ(LabelRef("done"))
	Label("loop")
	code := ZMM()
	VPMOVZXBD(at(codes, 0), code)
	masks := [3]OpmaskVirtual{K(), K(), K()}
	for i, b := range bits {
		VPTESTMD(b, code, masks[i])
	}
	// Eight candidates, halved three times. Depth first needs few registers.
	var choose func(level, first int) VecVirtual
	choose = func(level, first int) VecVirtual {
		if level < 0 {
			v := ZMM()
			VMOVDQA64(code, v)
			VPERMI2PS(regs[2*first+1], regs[2*first], v)
			return v
		}
		a := choose(level-1, first)
		b := choose(level-1, first+1<<level)
		VBLENDMPS(b, a, masks[level], a)
		return a
	}
	v := choose(2, 0)
	VMULPS(scale, v, v)
	VADDPS(offset, v, v)
	VMOVUPS(v, at(dst, 0))
	ADDQ(Imm(16), codes)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// streamCopy moves what was decoded to a buffer in the cache.
func streamCopy() {
	TEXT("streamCopy", NOSPLIT, "func(dst, src *byte, lines int)")
	Pragma("noescape")
	Doc("streamCopy copies cache lines of 64 bytes past the caches; dst is aligned to one. It needs AVX.")
	dst, src, lines := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("src"), src)
	Load(Param("lines"), lines)
	TESTQ(lines, lines)
	JZ(LabelRef("done"))
	Label("loop")
	a, b := YMM(), YMM()
	VMOVDQU(at(src, 0), a)
	VMOVDQU(at(src, 32), b)
	VMOVNTDQ(a, at(dst, 0))
	VMOVNTDQ(b, at(dst, 32))
	ADDQ(Imm(64), src)
	ADDQ(Imm(64), dst)
	DECQ(lines)
	JNZ(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()

	TEXT("storeFence", NOSPLIT, "func()")
	Doc("storeFence makes streamed bytes visible to other cores before anything that follows.")
	SFENCE()
	RET()
}
