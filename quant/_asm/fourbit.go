package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// fourBit is the frame that all kernels for nf4 and fp4 share: a loop over
// blocks and, within, over units of 32 bytes of codes (64 elements). Blocks of
// 32 elements have a loop of their own.
type fourBit struct {
	out     output
	prepare func(scale Mem)                      // scales and rounds the table, once a block
	unit    func(codes, dst Mem, n int, s store) // decodes n bytes of codes, 16 or 32
}

func (k fourBit) generate(isa string, setup func(table Register), ordinary, stream store) {
	name := "fourBit" + k.out.name + isa
	TEXT(name, NOSPLIT, "func(dst, codes *byte, scales *float32, table *[16]float32, blocks, half int, stream bool)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s decodes whole blocks of half bytes of codes each. To stream, dst must be aligned to a cache line.", name))
	dst, codes, scales := GP64(), GP64(), GP64()
	table, blocks, half := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("scales"), scales)
	Load(Param("table"), table)
	Load(Param("blocks"), blocks)
	Load(Param("half"), half)
	nt := GP8()
	Load(Param("stream"), nt)
	TESTQ(blocks, blocks)
	JZ(LabelRef("done"))
	setup(table)
	TESTB(nt, nt)
	JNZ(LabelRef("stream"))

	loops := func(prefix string, s store, prefetch bool) {
		step := func(n int) {
			if prefetch {
				PREFETCHT0(at(codes, ahead))
			}
			k.unit(at(codes, 0), at(dst, 0), n, s)
			ADDQ(Imm(uint64(n)), codes)
			ADDQ(U32(2*n*k.out.size), dst)
		}
		CMPQ(half, Imm(16))
		JEQ(LabelRef(prefix + "Short"))
		left := GP64()
		Label(prefix + "Block")
		k.prepare(at(scales, 0))
		MOVQ(half, left)
		Label(prefix + "Unit")
		step(32)
		SUBQ(Imm(32), left)
		JNZ(LabelRef(prefix + "Unit"))
		ADDQ(Imm(4), scales)
		DECQ(blocks)
		JNZ(LabelRef(prefix + "Block"))
		JMP(LabelRef("done"))
		Label(prefix + "Short")
		k.prepare(at(scales, 0))
		step(16)
		ADDQ(Imm(4), scales)
		DECQ(blocks)
		JNZ(LabelRef(prefix + "Short"))
	}
	loops("cached", ordinary, false)
	JMP(LabelRef("done"))
	Label("stream")
	loops("stream", stream, true)
	Label("done")
	VZEROUPPER()
	RET()
}

// moved returns m, n bytes further.
func moved(m Mem, n int) Mem {
	m.Disp += n
	return m
}

func fourBitAVX512(o output) {
	table, scaled := ZMM(), ZMM()
	k := fourBit{out: o}
	var setup func()
	if o == f32 {
		setup, k.unit = lookUp32AVX512(scaled)
		k.prepare = func(scale Mem) { VMULPS_BCST(scale, table, scaled) }
	} else {
		var lookUp func()
		lookUp, k.unit = lookUp16AVX512(scaled)
		round := roundF16AVX512
		var constants func()
		if o == bf16 {
			constants, round = roundBF16AVX512()
		}
		setup = func() {
			lookUp()
			if constants != nil {
				constants()
			}
		}
		k.prepare = func(scale Mem) {
			VMULPS_BCST(scale, table, scaled)
			round(scaled, scaled.AsY())
			// In both halves, so that the fifth bit of an index does not matter.
			VSHUFI64X2(Imm(0x44), scaled, scaled, scaled)
		}
	}
	k.generate("AVX512", func(t Register) {
		VMOVUPS(at(t, 0), table)
		setup()
	}, ordinaryZ, streaming)
}

func roundF16AVX512(src VecVirtual, dst Register) { VCVTPS2PH(Imm(0), src, dst) }

// roundBF16AVX512 rounds to the low half of dst; constants come first.
func roundBF16AVX512() (constants func(), round func(src VecVirtual, dst Register)) {
	constants, high := highBF16AVX512()
	return constants, func(src VecVirtual, dst Register) {
		high(src)
		VPSRLD(Imm(16), src, src)
		VPMOVDW(src, dst)
	}
}

// highBF16AVX512 leaves the rounded bits in the high half of each doubleword.
// It rounds by integer arithmetic, because VCVTNEPS2BF16 flushes subnormals:
// add 0x7fff and the last bit that stays. A NaN, which the addition might
// carry to infinity, becomes its sign and 0x7fc0.
func highBF16AVX512() (constants func(), high func(v VecVirtual)) {
	one, most, sign, quiet := ZMM(), ZMM(), ZMM(), ZMM()
	constants = func() {
		broadcast(1, one)
		broadcast(0x7fff, most)
		broadcast(1<<31, sign)
		broadcast(0x7fc00000, quiet)
	}
	return constants, func(v VecVirtual) {
		last, isNaN := ZMM(), K()
		VPSRLD(Imm(16), v, last)
		VPANDD(one, last, last)
		VPADDD(most, last, last)
		VCMPPS(Imm(3), v, v, isNaN)
		VPANDD(sign, v, isNaN, v)
		VPORD(quiet, v, isNaN, v)
		VPADDD(last, v, v) // a quieted NaN has zeros to take what is added
	}
}

// lookUp16AVX512 spreads each pair of code bytes over four words, shifts the
// wanted nibble of each to the bottom, and picks words of the table with what
// lies above still in place: only five bits count.
func lookUp16AVX512(table VecVirtual) (setup func(), unit func(codes, dst Mem, n int, s store)) {
	spread, shift := ZMM(), ZMM()
	setup = func() {
		VMOVDQU64(constantOnce("spreadPairs", 64,
			0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706,
			0x0908090809080908, 0x0b0a0b0a0b0a0b0a, 0x0d0c0d0c0d0c0d0c, 0x0f0e0f0e0f0e0f0e), spread)
		VPBROADCASTQ(constantOnce("shiftWords", 8, 0x0008000c00000004), shift)
	}
	return setup, func(codes, dst Mem, n int, s store) {
		for i := 0; i < n; i += 16 {
			v := ZMM()
			VBROADCASTI32X4(moved(codes, i), v)
			VPSHUFB(spread, v, v)
			VPSRLVW(shift, v, v)
			VPERMW(table, v, v)
			s(v, moved(dst, 4*i))
		}
	}
}

// lookUp32AVX512 does the same with eight bytes of codes over sixteen
// doublewords.
func lookUp32AVX512(table VecVirtual) (setup func(), unit func(codes, dst Mem, n int, s store)) {
	shift, upper := ZMM(), K()
	setup = func() {
		VMOVDQU64(constantOnce("shiftDoublewords", 64,
			0x0000000000000004, 0x000000080000000c, 0x0000001000000014, 0x000000180000001c), shift)
		r := GP32()
		MOVL(U32(0xff00), r)
		KMOVW(r, upper)
	}
	return setup, func(codes, dst Mem, n int, s store) {
		for i := 0; i < n; i += 8 {
			v := ZMM()
			VPBROADCASTD(moved(codes, i), v)
			VPBROADCASTD(moved(codes, i+4), upper, v)
			VPSRLVD(shift, v, v)
			VPERMPS(table, v, v)
			s(v, moved(dst, 8*i))
		}
	}
}

func fourBitAVX2(o output) {
	low, high := YMM(), YMM() // of the table, in float32
	k := fourBit{out: o}
	var setup func()
	if o == f32 {
		setup, k.prepare, k.unit = lookUp32AVX2(low, high)
	} else {
		setup, k.prepare, k.unit = lookUp16AVX2(o, low, high)
	}
	k.generate("AVX2", func(t Register) {
		VMOVUPS(at(t, 0), low)
		VMOVUPS(at(t, 32), high)
		setup()
	}, ordinaryY, streaming)
}

// lookUp16AVX2 keeps the low and the high bytes of the rounded table apart,
// sixteen of each, so that one VPSHUFB looks 32 codes up in either.
func lookUp16AVX2(o output, low, high VecVirtual) (setup func(), prepare func(Mem), unit func(codes, dst Mem, n int, s store)) {
	nibble, order := YMM(), YMM()
	lowBytes, highBytes := YMM(), YMM()
	setup = func() {
		broadcast(0x0f0f0f0f, nibble)
		VMOVDQU(constantOnce("evenOddDoublewords", 32,
			0x0000000200000000, 0x0000000600000004, 0x0000000300000001, 0x0000000700000005), order)
	}
	prepare = func(scale Mem) {
		s, a, b := YMM(), YMM(), YMM()
		VBROADCASTSS(scale, s)
		VMULPS(s, low, a)
		VMULPS(s, high, b)
		words := YMM()
		if o == f16 {
			VCVTPS2PH(Imm(0), a, a.AsX())
			VCVTPS2PH(Imm(0), b, b.AsX())
			VINSERTI128(Imm(1), b.AsX(), a, words)
		} else {
			roundBF16AVX2(a)
			roundBF16AVX2(b)
			VPACKUSDW(b, a, words)
			VPERMQ(Imm(0xd8), words, words)
		}
		// Each lane: the low bytes of its eight words, then the high ones.
		VPSHUFB(constantOnce("splitWords", 32, 0x0e0c0a0806040200, 0x0f0d0b0907050301), words, words)
		VPERMQ(Imm(0x88), words, lowBytes)
		VPERMQ(Imm(0xdd), words, highBytes)
	}
	return setup, prepare, func(codes, dst Mem, n int, s store) {
		v := YMM()
		if n == 16 {
			VMOVDQU(codes, v.AsX())
		} else {
			VMOVDQU(codes, v)
		}
		// Even doublewords to the lower lane, odd ones to the upper, because
		// the interleaving below works within lanes.
		VPERMD(v, order, v)
		even := YMM()
		VPSRLW(Imm(4), v, even)
		VPAND(nibble, even, even)
		VPAND(nibble, v, v)
		half := func(unpack func(...Op), at int) {
			index, l, h := YMM(), YMM(), YMM()
			unpack(v, even, index)
			VPSHUFB(index, lowBytes, l)
			VPSHUFB(index, highBytes, h)
			w := YMM()
			VPUNPCKLBW(h, l, w)
			s(w, moved(dst, at))
			VPUNPCKHBW(h, l, w)
			s(w, moved(dst, at+32))
		}
		half(func(o ...Op) { VPUNPCKLBW(o[0], o[1], o[2]) }, 0)
		if n == 32 {
			half(func(o ...Op) { VPUNPCKHBW(o[0], o[1], o[2]) }, 64)
		}
	}
}

// roundBF16AVX2 leaves the rounded bits in the low half of each doubleword.
// See roundBF16AVX512.
func roundBF16AVX2(v VecVirtual) {
	sum, nan, isNaN := YMM(), YMM(), YMM()
	VPSRLD(Imm(16), v, sum)
	VPAND(constantOnce("one", 32, 0x0000000100000001), sum, sum)
	VPADDD(constantOnce("most", 32, 0x00007fff00007fff), sum, sum)
	VPADDD(v, sum, sum)
	VCMPPS(Imm(3), v, v, isNaN)
	VPAND(constantOnce("sign", 32, 0x8000000080000000), v, nan)
	VPOR(constantOnce("quiet", 32, 0x7fc000007fc00000), nan, nan)
	VBLENDVPS(isNaN, nan, sum, sum)
	VPSRLD(Imm(16), sum, v)
}

// lookUp32AVX2 looks each code up in both halves of the scaled table and
// chooses by its fourth bit.
func lookUp32AVX2(low, high VecVirtual) (setup func(), prepare func(Mem), unit func(codes, dst Mem, n int, s store)) {
	a, b, shift := YMM(), YMM(), YMM()
	setup = func() {
		VMOVDQU(constantOnce("shiftDoublewords", 64,
			0x0000000000000004, 0x000000080000000c, 0x0000001000000014, 0x000000180000001c), shift)
	}
	prepare = func(scale Mem) {
		s := YMM()
		VBROADCASTSS(scale, s)
		VMULPS(s, low, a)
		VMULPS(s, high, b)
	}
	return setup, prepare, func(codes, dst Mem, n int, s store) {
		for i := 0; i < n; i += 4 {
			index, fromLow, fromHigh := YMM(), YMM(), YMM()
			VPBROADCASTD(moved(codes, i), index)
			VPSRLVD(shift, index, index)
			VPERMPS(a, index, fromLow)
			VPERMPS(b, index, fromHigh)
			VPSLLD(Imm(28), index, index)
			VBLENDVPS(index, fromHigh, fromLow, fromLow)
			s(fromLow, moved(dst, 8*i))
		}
	}
}
