package store

import (
	"unsafe"

	"nibble/tensor"
)

// Element are the Go types that tensors are read into. Each stands for one
// dtype, and uint8 for Bool as well as U8: a file may hold any byte for a
// truth, and Go's bool may not.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 |
		tensor.Float16 | tensor.BFloat16 | float32 | float64 | complex64 | complex128
}

// dtypeOf is the dtype that T stands for.
func dtypeOf[T Element]() tensor.DType {
	switch any(*new(T)).(type) {
	case uint8:
		return tensor.U8
	case int8:
		return tensor.I8
	case uint16:
		return tensor.U16
	case int16:
		return tensor.I16
	case uint32:
		return tensor.U32
	case int32:
		return tensor.I32
	case uint64:
		return tensor.U64
	case int64:
		return tensor.I64
	case tensor.Float16:
		return tensor.F16
	case tensor.BFloat16:
		return tensor.BF16
	case float32:
		return tensor.F32
	case float64:
		return tensor.F64
	case complex64:
		return tensor.C64
	default:
		return tensor.C128
	}
}

// holds reports whether elements of the Go type that stands for have can be
// those of a tensor of dt.
func holds(have, dt tensor.DType) bool { return have == dt || have == tensor.U8 && dt == tensor.Bool }

// bytesOf views a slice of elements as bytes.
func bytesOf[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
