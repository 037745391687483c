package quant

import (
	"math"
	"slices"

	"nibble/internal/rule"
	"nibble/tensor"
)

// State is what a checkpoint says about the quantization of one tensor, next
// to the companions that hold its statistics. It is filled by ParseState, or
// by a reader of torch files from Python objects; the constructors of decoders
// check it.
type State struct {
	QuantType string       // "nf4" or "fp4"; "" for blockwise 8-bit, which has none
	NameType  string       // the type in the name of the quant_state tensor, "" when there is no such tensor
	BlockSize int64        // elements with one scale
	DType     tensor.DType // what the tensor restores to: F16, BF16 or F32
	Shape     tensor.Shape // of the restored tensor; blockwise 8-bit has the shape of its codes instead
	Nested    *Nested      // what is said of quantized scales, nil when nothing is
}

// Nested describes scales that are themselves quantized. Its fields may hold
// what no file should say; they are judged only when absmax turns out to be
// quantized, because bitsandbytes ignores them otherwise.
type Nested struct {
	BlockSize int64        // scales with one nested scale; 0 when missing or not an integer
	DType     tensor.DType // the arithmetic's precision; Stored when missing or unknown
	Offset    float64      // added to each scale; NaN when missing or not a number
}

// blockSizes are those that bitsandbytes quantizes with.
var blockSizes = []int64{32, 64, 128, 256, 512, 1024, 2048, 4096}

// Check judges a four-bit state by itself, without its companions: quant type
// and blocksize (BNB-001), dtype and shape (BNB-104), and whether name and
// state agree (BNB-105).
func (s *State) Check() error {
	if err := s.checkType(); err != nil {
		return err
	}
	if !slices.Contains(blockSizes, s.BlockSize) {
		return rule.New(rule.QuantType, "blocksize is %d; want one of %v", s.BlockSize, blockSizes)
	}
	if err := s.checkDType(); err != nil {
		return err
	}
	if _, ok := s.Shape.Numel(); !ok {
		return rule.New(rule.QuantShape, "shape %v is negative or overflows", s.Shape)
	}
	return nil
}

func (s *State) checkType() error {
	if codeTable(s.QuantType) == nil {
		return rule.New(rule.QuantType, "quant_type is %q; want nf4 or fp4", s.QuantType)
	}
	if s.NameType != "" && s.NameType != s.QuantType {
		return rule.New(rule.QuantClash, "quant_state is named %q but says quant_type %q", s.NameType, s.QuantType)
	}
	return nil
}

func (s *State) checkDType() error {
	if !restorable(s.DType) {
		return rule.New(rule.QuantShape, "dtype is %v; want float16, bfloat16 or float32", s.DType)
	}
	return nil
}

// check judges what is said of nested scales, once they are in use.
func (n *Nested) check() error {
	switch {
	case n == nil:
		return rule.New(rule.Nested, "absmax is quantized but the quant_state says nothing of nested scales")
	case n.BlockSize <= 0:
		return rule.New(rule.Nested, "nested_blocksize is missing or not a positive integer")
	case !restorable(n.DType):
		return rule.New(rule.Nested, "nested_dtype is missing or not float16, bfloat16 or float32")
	case math.IsNaN(n.Offset) || math.IsInf(float64(float32(n.Offset)), 0):
		return rule.New(rule.Nested, "nested_offset is missing or not a finite number")
	}
	return nil
}

// restorable reports whether bitsandbytes can restore to dt, which are also
// the types that every quantized tensor decodes to.
func restorable(dt tensor.DType) bool {
	return dt == tensor.F16 || dt == tensor.BF16 || dt == tensor.F32
}
