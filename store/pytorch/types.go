package pytorch

import (
	"nibble/internal/rule"
	"nibble/tensor"
)

// Kind says in which container a file keeps its objects.
type Kind string

// The containers of torch.save, newest first, and that of torch.jit.save.
const (
	Zip         Kind = "zip"         // torch 1.6 and later
	Legacy      Kind = "legacy"      // torch 0.1.10 to 1.5: pickles, then raw storages
	Tar         Kind = "tar"         // before torch 0.1.10
	TorchScript Kind = "torchscript" // a zip that also holds code
)

// File describes everything found in one torch file. It holds no bytes of
// tensors and does not refer to the reader that it came from. A File is
// read-only once Read has returned it, and then safe for concurrent use.
type File struct {
	Kind      Kind
	Tensors   []Tensor    // in pickle order, names unique; companions of quantized tensors included
	Storages  []Storage   // each once, however many tensors view it
	Quantized []Quantized // tensors to be decoded rather than read, in the order of their packed tensors
	Opaque    []Opaque    // values of classes that are not read, in pickle order
}

// Tensor is one strided view of a storage.
type Tensor struct {
	// Name is the path from the root of the object, joined with dots.
	Name string
	// DType is tensor.Stored only where Err is set and torch's type has no
	// counterpart (quantized types, unknown storage classes).
	DType   tensor.DType
	Shape   tensor.Shape
	Strides []int64 // in elements, as long as Shape, never negative
	// Storage is an index into File.Storages, or -1 when Err is set and there
	// are no bytes to speak of.
	Storage int
	Start   int64 // first element, counted in elements of DType from the start of the storage
	// Contiguous reports that the elements lie one after the other in row-major
	// order, so that the bytes at Start are the tensor.
	Contiguous bool
	// Kind names what is not an ordinary tensor: "qtensor" (quantized by torch),
	// "sparse", "meta", "wrapper subclass", "nested", "device" (of an
	// accelerator), "conj" and "neg" (bits that the bytes do not show); "" for
	// ordinary ones. Err is set for each of them.
	Kind string
	// Err, when not nil, is why the tensor is listed but cannot be read. Its
	// Path is empty, its Tensor is Name.
	Err *rule.Error
}

// Storage is a run of bytes that tensors view. Every offset and size has been
// checked against the size of the file.
type Storage struct {
	Key   string
	Bytes int64 // size of the data, after inflating
	// Offset is the absolute file offset of the data, or of the compressed
	// data when Deflated.
	Offset int64
	// BigEndian reports that multi-byte elements are stored big end first.
	BigEndian bool
	// Deflated says that the data cannot be viewed in place: see Inflate.
	Deflated   bool
	Compressed int64  // size of the compressed data, when Deflated
	CRC32      uint32 // of the data, when Deflated
}

// Opaque is a value of a class that nibble does not read.
type Opaque struct {
	Name  string // path of the value, formed like a tensor's name
	Class string // module and name, such as "transformers.training_args.TrainingArguments"
}

// Schemes of a Quantized tensor.
const (
	Scheme4Bit       = "4bit"
	SchemeInt8       = "int8"
	SchemeBlockwise8 = "blockwise8"
)

// Quantized says how one tensor was quantized by bitsandbytes, where that is
// said in Python objects. The layout that safetensors shares (packed keys:
// "w.quant_state.bitsandbytes__nf4" and so on; "w.SCB" with a weight_format
// tensor) is not repeated here: it is found by the names of plain tensors.
//
// The values are the file's claims. Only their Python types have been checked;
// lengths, ranges and contradictions are for the decoder to judge. Indices are
// into File.Tensors, -1 where the tensor is absent.
type Quantized struct {
	Name   string // that of the packed tensor
	Scheme string
	Packed int // the codes

	// QuantType is "nf4" or "fp4" in sound 4-bit files, "" when it is None.
	QuantType string
	BlockSize int64
	DType     string       // what the tensor restores to, as torch names it without "torch."; "" when not said
	Shape     tensor.Shape // nil when None: the shape is that of Packed
	HasShape  bool         // tells a scalar from None

	Absmax   int
	QuantMap int // code table: 16 entries, or 256 for blockwise8

	// Nested statistics: absmax itself is quantized.
	Nested          bool
	NestedAbsmax    int
	NestedMap       int // -1 in the docstring layout: the default dynamic map is meant
	NestedBlockSize int64
	NestedDType     string
	// NestedOffset is the value of the offset, unless OffsetTensor holds it.
	NestedOffset float64
	HasOffset    bool // NestedOffset is set
	OffsetTensor int  // a tensor of one element

	// JSON is the tensor that holds everything but the tensors, in a state that
	// was packed but then nested ({"weight": …, "quant_state": {…}}); the other
	// values are then not set.
	JSON int

	// LLM.int8().
	SCB          int
	WeightFormat string // "row", "col32", …; a number in decimal; "" when not said

	// Companions are all tensors that belong to this one, and are therefore no
	// tensors of the model; in order of index.
	Companions []int
	// Err, when not nil, is why the state could not be understood. The packed
	// tensor must then not be taken for a plain one.
	Err *rule.Error
}
