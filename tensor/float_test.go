package tensor

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// Every f16 must widen as the x448/float16 package widens it.
func TestWidenF16IsExact(t *testing.T) {
	for h := range 1 << 16 {
		got := math.Float32bits(widenF16(uint16(h)))
		want := math.Float32bits(float16.Frombits(uint16(h)).Float32())
		if got != want {
			t.Fatalf("f16 %04x: got %08x, want %08x", h, got, want)
		}
	}
}

// sweep visits every exponent and sign with dense low and high mantissa bits,
// so that each tie, each neighbour of a tie and each carry occurs.
func sweep(visit func(u uint32)) {
	for top := range uint32(1 << 19) { // sign, exponent and ten mantissa bits
		for _, low := range [...]uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x0aaa} {
			visit(top<<13 | low)
		}
	}
}

// f32 to f16 must round as x448/float16 does, NaN payloads included.
func TestToFloat16Rounds(t *testing.T) {
	sweep(func(u uint32) {
		f := math.Float32frombits(u)
		if got, want := ToFloat16(f), float16.Fromfloat32(f); got != want {
			t.Fatalf("f32 %08x: got %04x, want %04x", u, got, want)
		}
	})
}

// f32 to bf16 must pick the nearer of the two neighbours, found here by
// comparing distances in float64.
func TestToBFloat16Rounds(t *testing.T) {
	sweep(func(u uint32) {
		f := math.Float32frombits(u)
		got := ToBFloat16(f)
		if f != f {
			if want := BFloat16(u>>16&0x8000) | 0x7fc0; got != want {
				t.Fatalf("NaN %08x: got %04x, want %04x", u, got, want)
			}
			return
		}
		down := BFloat16(u >> 16)
		if u<<16 == 0 {
			if got != down {
				t.Fatalf("%08x is exact: got %04x", u, got)
			}
			return
		}
		// The step from a bf16 to the next is the same on either side, also
		// from the largest finite value to the infinity.
		mid := math.Float32frombits(uint32(down)<<16 | 0x8000)
		want := down
		switch a, m := math.Abs(float64(f)), math.Abs(float64(mid)); {
		case a > m, a == m && down&1 == 1:
			want++
		}
		if got != want {
			t.Fatalf("%08x: got %04x, want %04x", u, got, want)
		}
	})
}

func TestBFloat16Float32(t *testing.T) {
	for _, c := range []struct {
		b    BFloat16
		want uint32
	}{
		{0x3f80, 0x3f800000}, {0x8000, 0x80000000}, {0x0001, 0x00010000},
		{0xff80, 0xff800000}, {0x7f81, 0x7f810000}, {0xffc0, 0xffc00000},
	} {
		if got := math.Float32bits(c.b.Float32()); got != c.want {
			t.Errorf("%04x: got %08x, want %08x", uint16(c.b), got, c.want)
		}
	}
}

// Known values of the eight-bit formats, from the OCP specification (fn, e5m2,
// e8m0) and from the paper of the fnuz formats.
func TestFloat8Values(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		dt   DType
		code byte
		want float32
	}{
		{F8E4M3, 0x00, 0}, {F8E4M3, 0x01, 0x1p-9}, {F8E4M3, 0x07, 7 * 0x1p-9}, {F8E4M3, 0x08, 0x1p-6},
		{F8E4M3, 0x38, 1}, {F8E4M3, 0x7e, 448}, {F8E4M3, 0xfe, -448}, {F8E4M3, 0x7f, nan}, {F8E4M3, 0xff, nan},
		{F8E5M2, 0x01, 0x1p-16}, {F8E5M2, 0x04, 0x1p-14}, {F8E5M2, 0x3c, 1}, {F8E5M2, 0x7b, 57344},
		{F8E5M2, 0x7c, inf}, {F8E5M2, 0xfc, -inf}, {F8E5M2, 0x7d, nan}, {F8E5M2, 0xff, nan},
		{F8E4M3FNUZ, 0x01, 0x1p-10}, {F8E4M3FNUZ, 0x40, 1}, {F8E4M3FNUZ, 0x7f, 240}, {F8E4M3FNUZ, 0xff, -240}, {F8E4M3FNUZ, 0x80, nan},
		{F8E5M2FNUZ, 0x01, 0x1p-17}, {F8E5M2FNUZ, 0x40, 1}, {F8E5M2FNUZ, 0x7f, 57344}, {F8E5M2FNUZ, 0x80, nan},
		{F8E8M0, 0x00, 0x1p-127}, {F8E8M0, 0x7f, 1}, {F8E8M0, 0xfe, 0x1p127}, {F8E8M0, 0xff, nan},
	} {
		var got [1]float32
		Widen(got[:], []byte{c.code}, c.dt)
		if got[0] != c.want && (got[0] == got[0] || c.want == c.want) {
			t.Errorf("%v %02x: got %v, want %v", c.dt, c.code, got[0], c.want)
		}
	}
}

// e5m2 is the upper byte of an f16: all 256 values must agree.
func TestFloat8E5M2IsHalfAnF16(t *testing.T) {
	for c := range 256 {
		got, want := float8[F8E5M2][c], float16.Frombits(uint16(c)<<8).Float32()
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("%02x: got %08x, want %08x", c, math.Float32bits(got), math.Float32bits(want))
		}
	}
}

// Only the signed formats with a negative zero may produce one.
func TestFloat8NegativeZero(t *testing.T) {
	for dt, want := range map[DType]uint32{F8E4M3: signBit, F8E5M2: signBit} {
		if got := math.Float32bits(float8[dt][0x80]); got != want {
			t.Errorf("%v 80: got %08x, want %08x", dt, got, want)
		}
	}
}
