package quant

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"nibble/internal/testkit"
	"nibble/tensor"
)

// TestMain says which kernels a log is about.
func TestMain(m *testing.M) {
	fmt.Printf("kernels: %s (of %s)\n", Active(), strings.Join(Kernels(), ", "))
	os.Exit(m.Run())
}

// forEachKernel runs a test with every kernel that this machine has.
func forEachKernel(t *testing.T, test func(*testing.T)) {
	for _, name := range Kernels() {
		t.Run(name, func(t *testing.T) {
			use(t, name)
			test(t)
		})
	}
}

// use selects kernels for the rest of a test.
func use(tb testing.TB, name string) {
	tb.Helper()
	before := Active()
	if err := SetKernels(name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := SetKernels(before); err != nil {
			tb.Error(err)
		}
	})
}

// Every kernel must give the bytes of plain Go, for every scheme and blocksize,
// with scales that arithmetic may trip over, at whatever start, length and
// alignment, and touch nothing beyond its slices: these end at guard pages.
func TestKernelsAgreeWithGeneric(t *testing.T) {
	for _, numel := range []int64{1, 31, 64, 1000, 40000} {
		for _, s := range samples(t, numel) {
			for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
				use(t, "generic")
				want := decodeAll(s.d, dt, s.parts)
				for _, name := range Kernels() {
					use(t, name)
					if !agree(t, s, dt, want) {
						t.Errorf("%s: %s numel=%d to %v: differs from generic", name, s.name, s.d.Numel(), dt)
					}
				}
			}
		}
	}
}

// agree decodes ranges of a sample from and to buffers that end at a cliff.
func agree(t *testing.T, s sample, dt tensor.DType, want []byte) bool {
	rnd := rand.New(rand.NewPCG(3, uint64(len(want))))
	// Scales are read in place when they are aligned. A page ends where their
	// last word does; a byte before it, none is aligned.
	var placed [2][][]byte
	for shift := range placed {
		for _, part := range s.parts {
			b := cliff(t, len(part)+shift)[:len(part)]
			copy(b, part)
			placed[shift] = append(placed[shift], b)
		}
	}
	n, size := s.d.Numel(), int64(dt.Size())
	room := cliff(t, len(want)+lineRoom)
	for round := range 12 {
		lo, hi := int64(0), n
		if round > 2 {
			lo = rnd.Int64N(n + 1)
			hi = lo + rnd.Int64N(n-lo+1)
		}
		if round > 8 { // on a block, but odd by alignment
			lo = lo / s.d.Align() * s.d.Align()
		}
		length := (hi - lo) * size
		for _, w := range []Write{Stream, Cached} {
			// Either the end lies at the cliff, or the start is aligned
			// to a line, or to nothing.
			dst := room[int64(len(room))-length:]
			if round%3 == 1 {
				dst = room[:length]
			} else if round%3 == 2 {
				dst = room[rnd.IntN(lineRoom):][:length]
			}
			clear(room)
			decode(s.d, dst, dt, lo, hi, placed[round%2], w)
			if !bytes.Equal(dst, want[lo*size:hi*size]) {
				t.Errorf("range [%d, %d), write %d, round %d", lo, hi, w, round)
				return false
			}
			outside := len(room) - bytes.Count(room, []byte{0})
			if inside := len(dst) - bytes.Count(dst, []byte{0}); inside != outside {
				t.Errorf("range [%d, %d): wrote outside the destination", lo, hi)
				return false
			}
		}
	}
	return true
}

// lineRoom is how far a destination is moved about.
const lineRoom = 128

// cliff is a buffer before a guard page.
func cliff(t *testing.T, n int) []byte { return testkit.Cliff(t, n) }

// Plain Go cannot stream; kernels do when told to, or by size.
func TestStreams(t *testing.T) {
	for _, c := range []struct {
		w    Write
		k    kernel
		n    int
		want bool
	}{
		{Stream, generic, StreamFrom, false},
		{Stream, avx2, 1, true},
		{Cached, avx512, StreamFrom, false},
		{Auto, avx2, StreamFrom - 1, false},
		{Auto, avx2, StreamFrom, true},
	} {
		if got := c.w.streams(c.k, c.n); got != c.want {
			t.Errorf("write %d, %v, %d bytes: %v; want %v", c.w, c.k, c.n, got, c.want)
		}
	}
}

// SetKernels must refuse what the machine lacks, and leave things as they are.
func TestSetKernels(t *testing.T) {
	use(t, "generic")
	if err := SetKernels("avx1024"); err == nil || !strings.Contains(err.Error(), `"generic"`) {
		t.Errorf("got %v; want an error that lists the choices", err)
	}
	if Active() != "generic" {
		t.Errorf("active kernels are %s after a refused choice", Active())
	}
	if err := SetKernels("auto"); err != nil || Active() != Kernels()[0] {
		t.Errorf("auto: %v, active %s; want %s", err, Active(), Kernels()[0])
	}
}
