// Package tensor holds the vocabulary of tensors: element types and their
// names in every container, shapes with checked arithmetic, and conversions
// between floating-point types. It knows nothing of files.
package tensor

import "fmt"

// DType is an element type.
type DType uint8

// Stored is the zero DType. As a request it means "the dtype that the tensor
// restores to"; no tensor has it.
const (
	Stored DType = iota
	Bool
	U8
	I8
	U16
	I16
	U32
	I32
	U64
	I64
	F16
	BF16
	F32
	F64
	C64  // pair of F32
	C128 // pair of F64
	F8E4M3
	F8E5M2
	F8E8M0
	F8E4M3FNUZ
	F8E5M2FNUZ
	F4     // E2M1, two elements a byte
	F6E2M3 // four elements in three bytes
	F6E3M2
	numDTypes
)

// names is the one table of what a dtype is called: by nibble, by safetensors
// and by torch ("" where a container has no such type).
var names = [numDTypes]struct {
	nibble, safetensors, torch string
	bits                       uint8
}{
	Stored:     {"stored", "", "", 0},
	Bool:       {"bool", "BOOL", "bool", 8},
	U8:         {"u8", "U8", "uint8", 8},
	I8:         {"i8", "I8", "int8", 8},
	U16:        {"u16", "U16", "uint16", 16},
	I16:        {"i16", "I16", "int16", 16},
	U32:        {"u32", "U32", "uint32", 32},
	I32:        {"i32", "I32", "int32", 32},
	U64:        {"u64", "U64", "uint64", 64},
	I64:        {"i64", "I64", "int64", 64},
	F16:        {"f16", "F16", "float16", 16},
	BF16:       {"bf16", "BF16", "bfloat16", 16},
	F32:        {"f32", "F32", "float32", 32},
	F64:        {"f64", "F64", "float64", 64},
	C64:        {"c64", "C64", "complex64", 64},
	C128:       {"c128", "", "complex128", 128},
	F8E4M3:     {"f8_e4m3", "F8_E4M3", "float8_e4m3fn", 8},
	F8E5M2:     {"f8_e5m2", "F8_E5M2", "float8_e5m2", 8},
	F8E8M0:     {"f8_e8m0", "F8_E8M0", "float8_e8m0fnu", 8},
	F8E4M3FNUZ: {"f8_e4m3fnuz", "F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
	F8E5M2FNUZ: {"f8_e5m2fnuz", "F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
	F4:         {"f4", "F4", "float4_e2m1fn_x2", 4},
	F6E2M3:     {"f6_e2m3", "F6_E2M3", "", 6},
	F6E3M2:     {"f6_e3m2", "F6_E3M2", "", 6},
}

var (
	byNibble      = table(func(d DType) string { return names[d].nibble })
	bySafetensors = table(func(d DType) string { return names[d].safetensors })
	byTorch       = table(func(d DType) string { return names[d].torch })
)

func table(name func(DType) string) map[string]DType {
	m := make(map[string]DType, numDTypes)
	for d := Stored; d < numDTypes; d++ {
		if n := name(d); n != "" {
			m[n] = d
		}
	}
	return m
}

// String is the name in nibble's own output, such as "bf16" or "f8_e4m3".
func (d DType) String() string {
	if d < numDTypes {
		return names[d].nibble
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Safetensors is the name in a safetensors header, "" if the format has none.
func (d DType) Safetensors() string { return names[d].safetensors }

// Torch is the name in torch without "torch.", "" if torch has none.
func (d DType) Torch() string { return names[d].torch }

// Bits is the size of one element in bits; 4 and 6 for the sub-byte types, 0
// for Stored.
func (d DType) Bits() int { return int(names[d].bits) }

// Size is the size of one element in bytes, 0 for sub-byte types and Stored.
func (d DType) Size() int {
	if names[d].bits%8 != 0 {
		return 0
	}
	return int(names[d].bits) / 8
}

// WordSize is the size in bytes of the unit whose byte order matters: that of
// one component for complex types, 1 for sub-byte types.
func (d DType) WordSize() int {
	switch d {
	case C64, C128:
		return d.Size() / 2
	}
	return max(d.Size(), 1)
}

// IsFloat reports whether values of the type can be converted to F16, BF16 and
// F32: every real floating-point type of at least one byte.
func (d DType) IsFloat() bool {
	switch d {
	case F16, BF16, F32, F64, F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ:
		return true
	}
	return false
}

// Parse finds a dtype by nibble's name for it, "stored" included.
func Parse(name string) (DType, bool) { d, ok := byNibble[name]; return d, ok }

// FromSafetensors finds a dtype by its name in a safetensors header.
func FromSafetensors(name string) (DType, bool) { d, ok := bySafetensors[name]; return d, ok }

// FromTorch finds a dtype by its name in torch, without "torch.".
func FromTorch(name string) (DType, bool) { d, ok := byTorch[name]; return d, ok }
