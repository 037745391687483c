package floor

import (
	"bytes"
	"testing"

	"nibble/internal/testkit"
)

// A loop that writes less, or more, than its destination measures nothing.
// Destinations here end at a guard page.
func TestLoopsFillTheirDestination(t *testing.T) {
	for _, blocks := range []int{0, 1, 2, 7, 64} {
		for _, lines := range []int{2, 4} {
			dst := testkit.Cliff(t, blocks*lines*LineSize)
			Set(dst)
			if n := bytes.Count(dst, []byte{3}); n != len(dst) {
				t.Errorf("Set: %d of %d bytes", n, len(dst))
			}
			codes, scales := testkit.Cliff(t, blocks*Block/2), testkit.Cliff(t, blocks*4)
			for i := range codes {
				codes[i] = 0x70
			}
			Decode(dst, codes, scales)
			if bytes.Contains(dst, []byte{3}) {
				t.Errorf("Decode: %d blocks of %d lines: bytes not written", blocks, lines)
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	b := Aligned(256)
	for name, call := range map[string]func(){
		"misaligned":    func() { Set(b[1:65]) },
		"partial line":  func() { Set(b[:65]) },
		"codes missing": func() { Decode(b[:128], nil, make([]byte, 4)) },
		"no blocks":     func() { Decode(b[:128], nil, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

// Bytes are bytes of output.
func BenchmarkSet(b *testing.B) {
	dst := Aligned(64 << 20)
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		Set(dst)
	}
}

func BenchmarkDecode(b *testing.B) {
	const blocks = 64 << 20 / (2 * Block)
	dst, codes, scales := Aligned(64<<20), Aligned(blocks*Block/2), Aligned(blocks*4)
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		Decode(dst, codes, scales)
	}
}
