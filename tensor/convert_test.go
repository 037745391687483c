package tensor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Stored words are little-endian, on every host: the test writes each element's
// bytes out by hand.
func TestConvertKnowsByteOrder(t *testing.T) {
	for _, c := range []struct {
		from DType
		big  []byte
		want float32
	}{
		{F16, []byte{0x3e, 0x01}, 1.5009765625},
		{BF16, []byte{0x3f, 0xc1}, 1.5078125},
		{F32, []byte{0x3f, 0xc0, 0x00, 0x01}, 1.5000001},
		{F64, []byte{0xbf, 0xf8, 0, 0, 0, 0, 0, 0}, -1.5},
	} {
		src := make([]byte, len(c.big))
		Swap(src, c.big, len(c.big))
		for i, b := range c.big {
			if src[len(src)-1-i] != b {
				t.Fatalf("%v: swapping %x gives %x", c.from, c.big, src)
			}
		}
		var got [1]float32
		Widen(got[:], src, c.from)
		if got[0] != c.want {
			t.Errorf("%v: got %v, want %v", c.from, got[0], c.want)
		}
		// To its own type: the host's order, and back again.
		host := make([]byte, len(src))
		Convert(host, c.from, src, c.from)
		var word uint64
		switch len(host) {
		case 2:
			word = uint64(binary.NativeEndian.Uint16(host))
		case 4:
			word = uint64(binary.NativeEndian.Uint32(host))
		case 8:
			word = binary.NativeEndian.Uint64(host)
		}
		if want := binary.BigEndian.Uint64(append(make([]byte, 8-len(c.big)), c.big...)); word != want {
			t.Errorf("%v: host word %x, want %x", c.from, word, want)
		}
		LittleEndian(host, host, c.from.WordSize())
		if !bytes.Equal(host, src) {
			t.Errorf("%v: there and back gives %x, want %x", c.from, host, src)
		}
	}
}

// Words are read in place where they lie as the host wants them, and nowhere
// else.
func TestFloat32s(t *testing.T) {
	words := []float32{0, 1.5, -2, 3}
	src := float32Bytes(words)
	if !HostLittleEndian {
		if got := Float32s(src); got != nil {
			t.Errorf("got %v on a big-endian host; want nil", got)
		}
		return
	}
	if got := Float32s(src[4:]); len(got) != 3 || &got[0] != &words[1] {
		t.Errorf("got %v; want the last three of %v themselves", got, words)
	}
	for shift := 1; shift < 4; shift++ {
		if got := Float32s(src[shift:][:12]); got != nil {
			t.Errorf("%d bytes off: got %v; want nil", shift, got)
		}
	}
}

// A complex value is two words; each is swapped for itself.
func TestConvertSwapsComplexByComponent(t *testing.T) {
	little := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40} // 1+2i
	host := make([]byte, 8)
	Convert(host, C64, little, C64)
	re := math.Float32frombits(binary.NativeEndian.Uint32(host))
	im := math.Float32frombits(binary.NativeEndian.Uint32(host[4:]))
	if re != 1 || im != 2 {
		t.Errorf("got %v+%vi, want 1+2i", re, im)
	}
}

// Long inputs cross the chunk of Convert; misaligned slices are allowed; the
// bytes beyond dst stay.
func TestConvertLengthsAndAlignment(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 1025} {
		for shift := range 4 {
			src := make([]byte, shift+4*n)[shift:]
			for i := range n {
				binary.LittleEndian.PutUint32(src[4*i:], math.Float32bits(float32(i)/3))
			}
			back := make([]byte, 1+2*n+1)
			back[0], back[2*n+1] = 0xaa, 0xbb
			Convert(back[1:1+2*n], BF16, src, F32)
			for i := range n {
				got := BFloat16(binary.NativeEndian.Uint16(back[1+2*i:]))
				if want := ToBFloat16(float32(i) / 3); got != want {
					t.Fatalf("n=%d shift=%d: element %d is %04x, want %04x", n, shift, i, got, want)
				}
			}
			if back[0] != 0xaa || back[2*n+1] != 0xbb {
				t.Fatalf("n=%d shift=%d: wrote outside dst", n, shift)
			}
		}
	}
}

// f64 goes to 16 bits through f32, so a value just above a tie of f16, by less
// than f32 can hold, rounds to even and not up.
func TestConvertF64ThroughF32(t *testing.T) {
	src := make([]byte, 8)
	binary.LittleEndian.PutUint64(src, math.Float64bits(1+0x1p-11+0x1p-40))
	dst := make([]byte, 2)
	Convert(dst, F16, src, F64)
	if got := binary.NativeEndian.Uint16(dst); got != 0x3c00 {
		t.Errorf("got %04x, want 3c00", got)
	}
}

// fillWeights writes values as weights have them: normal, about 0.02.
func fillWeights(dst []byte, dt DType) {
	rnd := rand.New(rand.NewPCG(1, 2))
	if dt.Size() == 1 {
		for i := range dst {
			dst[i] = byte(rnd.IntN(256)) &^ 0x40
		}
		return
	}
	values := make([]float32, len(dst)/dt.Size())
	for i := range values {
		values[i] = float32(rnd.NormFloat64() * 0.02)
	}
	Narrow(dst, dt, values)
}

func BenchmarkConvert(b *testing.B) {
	const n = 1 << 20
	for _, c := range []struct{ from, to DType }{{F32, F16}, {F32, BF16}, {F16, F32}, {BF16, F32}, {BF16, F16}, {F8E4M3, F32}} {
		b.Run(fmt.Sprintf("from=%v/to=%v", c.from, c.to), func(b *testing.B) {
			src, dst := make([]byte, n*c.from.Size()), make([]byte, n*c.to.Size())
			fillWeights(src, c.from)
			b.SetBytes(int64(len(dst))) // bytes of output
			for b.Loop() {
				Convert(dst, c.to, src, c.from)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelement/s")
		})
	}
}
