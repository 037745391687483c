package suite

import (
	"context"
	"fmt"

	"nibble/bench/measure"
	"nibble/quant"
	"nibble/tensor"
)

// outs are the dtypes to decode to.
var outs = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32}

// scheme is a decoder of numel made-up elements, and what it reads.
type scheme struct {
	name   string
	nested bool
	bits   int // of a code
	dec    quant.Decoder
	parts  [][]byte
}

// schemes are made of the memory's bytes.
func (m *memory) schemes() []scheme {
	return []scheme{
		m.fourBit("nf4", false), m.fourBit("nf4", true), m.fourBit("fp4", false), m.fourBit("fp4", true),
		m.blockwise(), m.int8(),
	}
}

func (m *memory) fourBit(typ string, nested bool) scheme {
	const blocks = numel / blockSize
	st := &quant.State{QuantType: typ, BlockSize: blockSize, DType: tensor.BF16, Shape: tensor.Shape{numel}}
	p := quant.FourBitParts{Packed: quant.Stored{DType: tensor.U8, Bytes: numel / 2}, QuantMap: vector(tensor.F32, 16)}
	parts := [][]byte{m.codes[:numel/2], m.scales}
	p.Absmax = vector(tensor.F32, blocks)
	if nested {
		st.Nested = &quant.Nested{BlockSize: 256, DType: tensor.F32, Offset: 0.0625}
		p.Absmax, p.NestedAbsmax, p.NestedMap = vector(tensor.U8, blocks), vector(tensor.F32, blocks/256), vector(tensor.F32, 256)
		// Behind the codes, lest a worker has read them just now.
		parts = [][]byte{m.codes[:numel/2], m.codes[numel/2:][:blocks], m.scales[:blocks/256*4], m.codeMap}
	}
	return scheme{typ, nested, 4, must(quant.NewFourBit(st, p)), parts}
}

func (m *memory) blockwise() scheme {
	const size = 256
	st := &quant.State{BlockSize: size, DType: tensor.F32}
	d := must(quant.NewBlockwise(st, quant.BlockwiseParts{
		Codes:  quant.Stored{DType: tensor.U8, Shape: tensor.Shape{numel}, Bytes: numel},
		Absmax: vector(tensor.F32, numel/size), QuantMap: vector(tensor.F32, 256),
	}))
	return scheme{"blockwise8", false, 8, d, [][]byte{m.codes, m.scales[:numel/size*4], m.codeMap}}
}

func (m *memory) int8() scheme {
	const cols = 4096
	d := must(quant.NewInt8(quant.Stored{DType: tensor.I8, Shape: tensor.Shape{numel / cols, cols}, Bytes: numel},
		vector(tensor.F32, numel/cols)))
	return scheme{"int8", false, 8, d, [][]byte{m.codes, m.scales[:numel/cols*4]}}
}

func vector(dt tensor.DType, n int64) *quant.Stored {
	return &quant.Stored{DType: dt, Shape: tensor.Shape{n}, Bytes: n * int64(dt.Size())}
}

// must is for decoders whose parameters are constants.
func must[D quant.Decoder](d D, err error) quant.Decoder {
	if err != nil {
		panic(fmt.Sprintf("suite: %v", err))
	}
	return d
}

// kernelSections measure kernels from and to memory, cache-resident and large,
// with one worker and with all.
func kernelSections(ctx context.Context, m *memory) []*section {
	cached, large := &section{title: "kernels, a MiB for each worker that stays in the caches"}, &section{title: "kernels, past the caches"}
	for _, workers := range workerCounts() {
		cached.kernels(ctx, m.cached(workers))
		large.kernels(ctx, m.large(largeBytes, workers))
	}
	large.levels(ctx, m.large(largeBytes, 1), m.fourBit("nf4", false))
	return []*section{cached, large}
}

// kernels adds all schemes and dtypes.
func (s *section) kernels(ctx context.Context, t target) {
	s.bounds(ctx, t, []int{4, 8}, []int{2, 4})
	for _, from := range t.mem.schemes() {
		for _, dt := range outs {
			s.decode(ctx, t, from, dt, quant.Active())
		}
	}
}

// row is a row about a destination.
func (t target) row(name string) Row {
	return Row{Name: name, SizeBytes: t.size(), Cached: t.cached, Workers: t.workers}
}

// bounds adds what memory allows: what every later row about t is compared
// with. bits are those of codes, sizes those of elements in bytes.
func (s *section) bounds(ctx context.Context, t target, bits, sizes []int) {
	memset := s.add(t.row(Memset), t.memset(ctx), references{none, none, none})
	ordinary := s.add(t.row(Ordinary), t.ordinary(ctx), references{memset, none, none})
	for _, b := range bits {
		for _, size := range sizes {
			r := t.row(Floor)
			r.Scheme, r.Out = bitsText(b), bitsText(8*size)
			s.add(r, t.floor(ctx, b, size), references{memset, ordinary, none})
		}
	}
}

func bitsText(n int) string { return fmt.Sprintf("%d-bit", n) }

// compare adds a row about codes of so many bits and elements of so many bytes,
// to be compared with the bounds of as many workers as the loop has.
func (s *section) compare(r Row, l measure.Loop, bits, size int) {
	refs := references{none, none, none}
	for i, b := range s.rows {
		if b.Cached != r.Cached || b.Workers != l.Threads {
			continue
		}
		switch {
		case b.Name == Memset:
			refs.memset = i
		case b.Name == Ordinary:
			refs.ordinary = i
		case b.Name == Floor && b.Scheme == bitsText(bits) && b.Out == bitsText(8*size):
			refs.floor = i
		}
	}
	s.add(r, l, refs)
}

func (s *section) decode(ctx context.Context, t target, from scheme, dt tensor.DType, kernels string) {
	r := t.row(Decode)
	r.Kernels, r.Scheme, r.Nested, r.Out = kernels, from.name, from.nested, dt.String()
	s.compare(r, t.decode(ctx, from.dec, from.parts, dt), from.bits, dt.Size())
}

// levels adds what the lower levels of kernels make of one scheme.
func (s *section) levels(ctx context.Context, t target, from scheme) {
	for _, level := range quant.Kernels() {
		if level == quant.Active() {
			continue
		}
		for _, dt := range outs {
			s.decode(ctx, t, from, dt, level)
		}
	}
}
