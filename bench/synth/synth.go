// Package synth writes made-up checkpoints of any size: bitsandbytes nf4 or
// fp4 weights with sound companions and random codes. Benchmarks, and tests
// that need more than the golden vectors, read them.
package synth

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// Model says what a checkpoint holds: Layers times Weights quantized matrices
// named model.layers.<i>.w<j>.weight and one plain norm, and an embedding and a
// head, both plain.
type Model struct {
	Layers, Weights int
	Rows, Cols      int64  // of each matrix
	QuantType       string // nf4 or fp4; "" means nf4
	BlockSize       int64  // 0 means 64
	Nested          bool
	DType           tensor.DType // restored; Stored means bf16
	Vocab           int64        // rows of embedding and head; 0 means none
}

func (m Model) withDefaults() Model {
	if m.QuantType == "" {
		m.QuantType = "nf4"
	}
	if m.BlockSize == 0 {
		m.BlockSize = 64
	}
	if m.DType == tensor.Stored {
		m.DType = tensor.BF16
	}
	return m
}

// part is a stored tensor and what writes its bytes.
type part struct {
	name  string
	dtype tensor.DType
	shape tensor.Shape
	fill  func(w io.Writer, n int64, rng *rand.Rand) error
}

// Write writes the checkpoint to path, the same bytes for the same Model.
func Write(path string, m Model) error {
	m = m.withDefaults()
	parts := m.parts()
	byName := make(map[string]part, len(parts))
	tensors := make([]safetensors.Tensor, len(parts))
	for i, p := range parts {
		byName[p.name] = p
		tensors[i] = safetensors.Tensor{Name: p.name, DType: p.dtype, Shape: p.shape}
	}
	layout, err := safetensors.Encode(tensors, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	_, err = w.Write(layout.Header)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, t := range layout.Tensors {
		if err == nil {
			err = byName[t.Name].fill(w, t.End-t.Begin, rng)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (m Model) parts() []part {
	var ps []part
	if m.Vocab > 0 {
		ps = append(ps, part{"model.embed_tokens.weight", m.DType, tensor.Shape{m.Vocab, m.Cols}, noise},
			part{"lm_head.weight", m.DType, tensor.Shape{m.Vocab, m.Cols}, noise})
	}
	for l := range m.Layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		ps = append(ps, part{prefix + "norm.weight", m.DType, tensor.Shape{m.Cols}, noise})
		for w := range m.Weights {
			ps = append(ps, m.quantized(fmt.Sprintf("%sw%d.weight", prefix, w))...)
		}
	}
	return ps
}

// quantized is a packed weight and its companions, as bitsandbytes writes them.
func (m Model) quantized(name string) []part {
	n := m.Rows * m.Cols
	blocks := (n + m.BlockSize - 1) / m.BlockSize
	state := fmt.Sprintf(`{"quant_type": %q, "blocksize": %d, "dtype": %q, "shape": [%d, %d]`,
		m.QuantType, m.BlockSize, m.DType.Torch(), m.Rows, m.Cols)
	ps := []part{
		{name, tensor.U8, tensor.Shape{(n + 1) / 2, 1}, noise},
		{name + ".quant_map", tensor.F32, tensor.Shape{16}, floats(0, 1)},
	}
	if m.Nested {
		state += `, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0625`
		ps = append(ps,
			part{name + ".absmax", tensor.U8, tensor.Shape{blocks}, noise},
			part{name + ".nested_absmax", tensor.F32, tensor.Shape{(blocks + 255) / 256}, floats(0.01, 0.05)},
			part{name + ".nested_quant_map", tensor.F32, tensor.Shape{256}, floats(-1, 1)})
	} else {
		ps = append(ps, part{name + ".absmax", tensor.F32, tensor.Shape{blocks}, floats(0.01, 0.2)})
	}
	state += "}"
	return append(ps, part{name + ".quant_state.bitsandbytes__" + m.QuantType, tensor.U8, tensor.Shape{int64(len(state))},
		func(w io.Writer, _ int64, _ *rand.Rand) error { _, err := io.WriteString(w, state); return err }})
}

// noise writes random bytes.
func noise(w io.Writer, n int64, rng *rand.Rand) error {
	var b [8]byte
	for ; n > 0; n -= 8 {
		binary.LittleEndian.PutUint64(b[:], rng.Uint64())
		if _, err := w.Write(b[:min(n, 8)]); err != nil {
			return err
		}
	}
	return nil
}

// floats writes random float32 values in [lo, hi).
func floats(lo, hi float32) func(io.Writer, int64, *rand.Rand) error {
	return func(w io.Writer, n int64, rng *rand.Rand) error {
		var b [4]byte
		for ; n > 0; n -= 4 {
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(lo+(hi-lo)*rng.Float32()))
			if _, err := w.Write(b[:]); err != nil {
				return err
			}
		}
		return nil
	}
}
