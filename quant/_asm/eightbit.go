package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// unit is the number of elements that the eight-bit kernels take at a time.
const unit = 64

// lookUp256 finds the bytes that the codes x stand for in a plane of 256
// bytes, held in four registers: seven bits of a code choose within a pair,
// the eighth, in upper, the pair.
func lookUp256(plane []VecVirtual, x VecVirtual, upper OpmaskVirtual) VecVirtual {
	a, b := ZMM(), ZMM()
	VMOVDQA64(x, a)
	VPERMI2B(plane[1], plane[0], a)
	VMOVDQA64(x, b)
	VPERMI2B(plane[3], plane[2], b)
	VPBLENDMB(b, a, upper, a)
	return a
}

// loadPlane loads 256 bytes.
func loadPlane(m Mem) []VecVirtual {
	plane := make([]VecVirtual, 4)
	for i := range plane {
		plane[i] = ZMM()
		VMOVDQU64(moved(m, 64*i), plane[i])
	}
	return plane
}

// twice emits a loop with ordinary stores and one that streams, and chooses by
// the parameter named stream.
func twice(ordinary, stream store, loop func(prefix string, s store, prefetch bool)) {
	nt := GP8()
	Load(Param("stream"), nt)
	TESTB(nt, nt)
	JNZ(LabelRef("stream"))
	loop("cached", ordinary, false)
	JMP(LabelRef("done"))
	Label("stream")
	loop("stream", stream, true)
	Label("done")
	VZEROUPPER()
	RET()
}

var (
	ordinaryZ store = func(v, m Op) { VMOVDQU64(v, m) }
	ordinaryY store = func(v, m Op) { VMOVDQU(v, m) }
	streaming store = func(v, m Op) { VMOVNTDQ(v, m) }
)

// lookUp16VBMI decodes codes of eight bits where a table of all 256 results,
// of 16 bits each, is at hand: for long blocks and rows with one scale.
func lookUp16VBMI() {
	TEXT("lookUp16VBMI", NOSPLIT, "func(dst, codes *byte, planes *[512]byte, n int, stream bool)")
	Pragma("noescape")
	Doc("lookUp16VBMI looks n codes up, a positive multiple of 64; planes are the low and the high bytes of the results. To stream, dst must be aligned to a cache line.")
	dst, codes, planes, n := GP64(), GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("planes"), planes)
	Load(Param("n"), n)
	low, high := loadPlane(at(planes, 0)), loadPlane(at(planes, 256))
	order := ZMM()
	// Interleaving works within lanes, so each gets eight codes of either
	// half of the result.
	VMOVDQU64(constantOnce("interleaveQuadwords", 64, 0, 4, 1, 5, 2, 6, 3, 7), order)
	twice(ordinaryZ, streaming, func(prefix string, s store, prefetch bool) {
		Label(prefix + "Unit")
		if prefetch {
			PREFETCHT0(at(codes, ahead))
		}
		x, upper := ZMM(), K()
		VPERMQ(at(codes, 0), order, x)
		VPMOVB2M(x, upper)
		l, h, w := lookUp256(low, x, upper), lookUp256(high, x, upper), ZMM()
		VPUNPCKLBW(h, l, w)
		s(w, at(dst, 0))
		VPUNPCKHBW(h, l, w)
		s(w, at(dst, 64))
		ADDQ(Imm(unit), codes)
		ADDQ(U32(2*unit), dst)
		SUBQ(Imm(unit), n)
		JNZ(LabelRef(prefix + "Unit"))
	})
}

// roundTableVBMI makes the planes for lookUp16VBMI.
func roundTableVBMI(o output) {
	name := "roundTable" + o.name + "VBMI"
	TEXT(name, NOSPLIT, "func(planes *[512]byte, values *[256]float32, a, b float32)")
	Pragma("noescape")
	Doc(name + " computes values*a*b, in two roundings and in this order, rounds each and splits it into its low and its high byte.")
	planes, values := GP64(), GP64()
	Load(Param("planes"), planes)
	Load(Param("values"), values)
	a, b := ZMM(), ZMM()
	VBROADCASTSS(NewParamAddr("a", 16), a)
	VBROADCASTSS(NewParamAddr("b", 20), b)
	even, odd := ZMM(), ZMM()
	VMOVDQU64(constantOnce("evenBytes", 64,
		0x0e0c0a0806040200, 0x1e1c1a1816141210, 0x2e2c2a2826242220, 0x3e3c3a3836343230,
		0x4e4c4a4846444240, 0x5e5c5a5856545250, 0x6e6c6a6866646260, 0x7e7c7a7876747270), even)
	ones := ZMM()
	broadcast(0x01010101, ones)
	VPORD(ones, even, odd)
	narrow := narrowAVX512(o)
	words := func(disp int) VecVirtual {
		v, w := ZMM(), ZMM()
		for _, x := range []VecVirtual{v, w} {
			VMULPS(at(values, disp), a, x)
			VMULPS(b, x, x)
			disp += 64
		}
		narrow(v, w)
		return v
	}
	for i := range 4 {
		first, second := words(256*i), words(256*i+128)
		l, h := ZMM(), ZMM()
		VMOVDQA64(even, l)
		VPERMI2B(second, first, l)
		VMOVDQU64(l, at(planes, 64*i))
		VMOVDQA64(odd, h)
		VPERMI2B(second, first, h)
		VMOVDQU64(h, at(planes, 256+64*i))
	}
	VZEROUPPER()
	RET()
}

// blockwiseVBMI looks the four bytes of each map value up in planes of their
// own, puts them together and multiplies: right for float32, and for blocks
// too short to pay for a table of results.
func blockwiseVBMI(o output) {
	name := "blockwise" + o.name + "VBMI"
	TEXT(name, NOSPLIT, "func(dst, codes *byte, scales *float32, planes *[1024]byte, blocks, size int, stream bool)")
	Pragma("noescape")
	Doc(name + " decodes whole blocks of size elements each, a multiple of 64; planes are the first to the fourth bytes of the map's values. To stream, dst must be aligned to a cache line.")
	dst, codes, scales := GP64(), GP64(), GP64()
	planes, blocks, size := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("scales"), scales)
	Load(Param("planes"), planes)
	Load(Param("blocks"), blocks)
	Load(Param("size"), size)
	var plane [4][]VecVirtual
	for i := range plane {
		plane[i] = loadPlane(at(planes, 256*i))
	}
	order := ZMM()
	// Interleaving twice works within lanes: each gets four codes of each
	// quarter of the result.
	VMOVDQU64(constantOnce("interleaveDoublewords", 64,
		0x0000000400000000, 0x0000000c00000008, 0x0000000500000001, 0x0000000d00000009,
		0x0000000600000002, 0x0000000e0000000a, 0x0000000700000003, 0x0000000f0000000b), order)
	narrow := narrowAVX512(o)
	twice(ordinaryZ, streaming, func(prefix string, s store, prefetch bool) {
		left, scale := GP64(), ZMM()
		Label(prefix + "Block")
		VBROADCASTSS(at(scales, 0), scale)
		MOVQ(size, left)
		Label(prefix + "Unit")
		if prefetch {
			PREFETCHT0(at(codes, ahead))
		}
		x, upper := ZMM(), K()
		VPERMD(at(codes, 0), order, x)
		VPMOVB2M(x, upper)
		pair := func(i int) (l, h VecVirtual) {
			a, b := lookUp256(plane[i], x, upper), lookUp256(plane[i+1], x, upper)
			h = ZMM()
			VPUNPCKHBW(b, a, h)
			VPUNPCKLBW(b, a, a)
			return a, h
		}
		l0, h0 := pair(0)
		l2, h2 := pair(2)
		quarters := func(first, second VecVirtual) (a, b VecVirtual) {
			b = ZMM()
			VPUNPCKHWD(second, first, b)
			VPUNPCKLWD(second, first, first)
			VMULPS(scale, first, first)
			VMULPS(scale, b, b)
			return first, b
		}
		put := func(a, b VecVirtual, i int) {
			if o == f32 {
				s(a, at(dst, 128*i))
				s(b, at(dst, 128*i+64))
				return
			}
			narrow(a, b)
			s(a, at(dst, 64*i))
		}
		a, b := quarters(l0, l2)
		put(a, b, 0)
		a, b = quarters(h0, h2)
		put(a, b, 1)
		ADDQ(Imm(unit), codes)
		ADDQ(U32(unit*o.size), dst)
		SUBQ(Imm(unit), left)
		JNZ(LabelRef(prefix + "Unit"))
		ADDQ(Imm(4), scales)
		DECQ(blocks)
		JNZ(LabelRef(prefix + "Block"))
	})
}

// blockwiseAVX2 loads the value of each code by itself: gathers are slow on
// processors that guard them against sampling, and AVX2 has no look-up in 256
// bytes.
func blockwiseAVX2(o output) {
	name := "blockwise" + o.name + "AVX2"
	TEXT(name, NOSPLIT, "func(dst, codes *byte, scales *float32, values *[256]float32, blocks, size int, stream bool)")
	Pragma("noescape")
	Doc(name + " decodes whole blocks of size elements each, a multiple of 64. To stream, dst must be aligned to a cache line.")
	dst, codes, scales := GP64(), GP64(), GP64()
	values, blocks, size := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("scales"), scales)
	Load(Param("values"), values)
	Load(Param("blocks"), blocks)
	Load(Param("size"), size)
	narrow := narrowAVX2(o)
	const step = 16
	twice(ordinaryY, streaming, func(prefix string, s store, prefetch bool) {
		left, scale := GP64(), YMM()
		Label(prefix + "Block")
		VBROADCASTSS(at(scales, 0), scale)
		MOVQ(size, left)
		Label(prefix + "Unit")
		if prefetch {
			PREFETCHT0(at(codes, ahead))
		}
		four := func(i int) Register {
			x := XMM()
			for j := range 4 {
				code := GP32()
				MOVBLZX(at(codes, i+j), code)
				value := Mem{Base: values, Index: code.As64(), Scale: 4}
				if j == 0 {
					VMOVSS(value, x)
				} else {
					VINSERTPS(Imm(uint64(j)<<4), value, x, x)
				}
			}
			return x
		}
		eight := func(i int) VecVirtual {
			v := YMM()
			low, high := four(i), four(i+4)
			VINSERTF128(Imm(1), high, low.(VecVirtual).AsY(), v)
			VMULPS(scale, v, v)
			return v
		}
		a, b := eight(0), eight(8)
		if o == f32 {
			s(a, at(dst, 0))
			s(b, at(dst, 32))
		} else {
			narrow(a, b)
			s(a, at(dst, 0))
		}
		ADDQ(Imm(step), codes)
		ADDQ(Imm(uint64(step*o.size)), dst)
		SUBQ(Imm(step), left)
		JNZ(LabelRef(prefix + "Unit"))
		ADDQ(Imm(4), scales)
		DECQ(blocks)
		JNZ(LabelRef(prefix + "Block"))
	})
}

// int8Kernel multiplies: q*scb*(1/127), in two roundings and in this order.
func int8Kernel(o output, isa string) {
	name := "int8" + o.name + isa
	TEXT(name, NOSPLIT, "func(dst, codes *byte, scb float32, n int, stream bool)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s decodes n elements of a row, a positive multiple of 64. To stream, dst must be aligned to a cache line.", name))
	dst, codes, n := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("codes"), codes)
	Load(Param("n"), n)
	vector, ordinary := ZMM, ordinaryZ
	if isa == "AVX2" {
		vector, ordinary = YMM, ordinaryY
	}
	scb, inv127 := vector(), vector()
	VBROADCASTSS(NewParamAddr("scb", 16), scb)
	broadcast(0x3c010204, inv127)
	var narrow func(a, b VecVirtual)
	if isa == "AVX2" {
		narrow = narrowAVX2(o)
	} else {
		narrow = narrowAVX512(o)
	}
	lanes := int(scb.Size()) / 4
	twice(ordinary, streaming, func(prefix string, s store, prefetch bool) {
		Label(prefix + "Unit")
		if prefetch {
			PREFETCHT0(at(codes, ahead))
		}
		values := func(i int) VecVirtual {
			v := vector()
			VPMOVSXBD(at(codes, i), v)
			VCVTDQ2PS(v, v)
			VMULPS(scb, v, v)
			VMULPS(inv127, v, v)
			if o == f32 {
				s(v, at(dst, 4*i))
			}
			return v
		}
		for i := 0; i < unit; i += 2 * lanes {
			a, b := values(i), values(i+lanes)
			if o != f32 {
				narrow(a, b)
				s(a, at(dst, 2*i))
			}
		}
		ADDQ(Imm(unit), codes)
		ADDQ(U32(unit*o.size), dst)
		SUBQ(Imm(unit), n)
		JNZ(LabelRef(prefix + "Unit"))
	})
}

// narrowAVX512 sets constants up where o needs them and returns how two vectors
// of float32 are rounded into the first.
func narrowAVX512(o output) func(a, b VecVirtual) {
	switch o {
	case f16:
		return func(a, b VecVirtual) {
			VCVTPS2PH(Imm(0), a, a.AsY())
			VCVTPS2PH(Imm(0), b, b.AsY())
			VINSERTI64X4(Imm(1), b.AsY(), a, a)
		}
	case bf16:
		constants, high := highBF16AVX512()
		constants()
		odd := ZMM()
		VMOVDQU64(constantOnce("oddWords", 64,
			0x0007000500030001, 0x000f000d000b0009, 0x0017001500130011, 0x001f001d001b0019,
			0x0027002500230021, 0x002f002d002b0029, 0x0037003500330031, 0x003f003d003b0039), odd)
		return func(a, b VecVirtual) {
			high(a)
			high(b)
			VPERMT2W(b, odd, a)
		}
	}
	return nil
}

func narrowAVX2(o output) func(a, b VecVirtual) {
	if o == f16 {
		return func(a, b VecVirtual) {
			VCVTPS2PH(Imm(0), a, a.AsX())
			VCVTPS2PH(Imm(0), b, b.AsX())
			VINSERTI128(Imm(1), b.AsX(), a, a)
		}
	}
	return func(a, b VecVirtual) {
		roundBF16AVX2(a)
		roundBF16AVX2(b)
		VPACKUSDW(b, a, a)
		VPERMQ(Imm(0xd8), a, a)
	}
}
