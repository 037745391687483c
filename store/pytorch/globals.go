package pytorch

import (
	"strings"

	"nibble/internal/rule"
	"nibble/tensor"
)

// maxName is the longest module or class name.
const maxName = 1024

// unsafeModules have no use in a checkpoint but harm. A module counts by its
// first component: os.path is os.
var unsafeModules = set("os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "ctypes",
	"importlib", "runpy", "pty", "webbrowser")

// unsafeBuiltins are the members of builtins of which the same is true.
var unsafeBuiltins = set("eval", "exec", "execfile", "compile", "open", "__import__", "getattr",
	"apply", "breakpoint", "input")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// dangerous reports whether naming name in module is reason enough to refuse a
// file, whether or not it is called.
func dangerous(module, name string) bool {
	root, _, _ := strings.Cut(module, ".")
	if unsafeModules[root] {
		return true
	}
	parts := strings.Split(name, ".")
	if isBuiltins(root) && unsafeBuiltins[parts[0]] {
		return true
	}
	// Protocol 4 lets a name be a path of attributes, so that
	// torch.serialization's "os.system" is os.system.
	for i, p := range parts[:len(parts)-1] {
		if unsafeModules[p] || isBuiltins(p) && unsafeBuiltins[parts[i+1]] {
			return true
		}
	}
	return false
}

func isBuiltins(module string) bool {
	return module == "builtins" || module == "__builtin__" || module == "__builtins__"
}

// resolve turns a name in a module into what the machine knows under it.
func (m *machine) resolve(module, name string) (value, error) {
	if dangerous(module, name) {
		return nil, m.src.fail(m.at, rule.UnsafeGlobal, "unsafe global %s.%s", module, name)
	}
	if module == "torch" {
		if d, ok := torchDType(name); ok {
			return d, nil
		}
	}
	if c, ok := storageClasses[name]; ok && storageModule(module) {
		return c, nil
	}
	m.meter.charge(costGlobal + int64(len(module)+len(name)))
	return &global{canonical(module), name}, nil
}

// canonical undoes the renaming of modules between versions of Python and numpy.
func canonical(module string) string {
	switch module {
	case "__builtin__":
		return "builtins"
	case "copy_reg":
		return "copyreg"
	}
	if rest, ok := strings.CutPrefix(module, "numpy._core"); ok {
		return "numpy.core" + rest
	}
	return module
}

// numpyScalars are the types of numpy's scalars, which are numbers, strings or
// nothing that a tensor could be in.
var numpyScalars = set("bool", "bool_", "bool8", "byte", "ubyte", "short", "ushort", "intc", "uintc", "int_", "uint",
	"long", "ulong", "longlong", "ulonglong", "intp", "uintp",
	"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"half", "single", "double", "longdouble", "float_", "float16", "float32", "float64", "float96", "float128",
	"csingle", "cdouble", "clongdouble", "complex_", "complex64", "complex128", "complex192", "complex256",
	"str_", "bytes_", "unicode_", "string_", "void", "datetime64", "timedelta64",
	"generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating")

// torchConstants are the members of module torch that are constants or types:
// dtypes that nibble does not have, layouts, memory formats, quantization
// schemes, and the types of these and of tensors.
var torchConstants = set("quint8", "qint8", "qint32", "quint4x2", "quint2x4",
	"bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "complex32", "chalf", "float4_e2m1fn_x2",
	"int1", "int2", "int3", "int4", "int5", "int6", "int7",
	"uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7",
	"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn",
	"preserve_format", "contiguous_format", "channels_last", "channels_last_3d",
	"per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
	"per_channel_affine_float_qparams",
	"dtype", "layout", "memory_format", "qscheme", "Tensor",
	"BoolTensor", "ByteTensor", "CharTensor", "ShortTensor", "IntTensor", "LongTensor",
	"HalfTensor", "BFloat16Tensor", "FloatTensor", "DoubleTensor")

// inertGlobal reports whether a class or constant that is merely named, such
// as torch.strided, is not worth a mention.
func inertGlobal(g *global) bool {
	return g.module == "torch" && torchConstants[g.name] || constructorOf(g) != nil
}

// torchDType finds a dtype by its name in module torch, other names included.
func torchDType(name string) (tensor.DType, bool) {
	if alias, ok := dtypeAliases[name]; ok {
		name = alias
	}
	return tensor.FromTorch(name)
}

var dtypeAliases = map[string]string{
	"half": "float16", "float": "float32", "double": "float64",
	"short": "int16", "int": "int32", "long": "int64",
	"cfloat": "complex64", "cdouble": "complex128",
}

func storageModule(module string) bool {
	switch module {
	case "torch", "torch.storage", "torch.cuda":
		return true
	}
	return false
}

// storageClasses are torch's storages by name. Those of quantized types have no
// dtype of ours, but their size must be known: in legacy files it tells where
// the next storage begins.
var storageClasses = map[string]*storageClass{}

func init() {
	for name, d := range map[string]tensor.DType{
		"BoolStorage": tensor.Bool, "ByteStorage": tensor.U8, "CharStorage": tensor.I8,
		"ShortStorage": tensor.I16, "IntStorage": tensor.I32, "LongStorage": tensor.I64,
		"HalfStorage": tensor.F16, "BFloat16Storage": tensor.BF16, "FloatStorage": tensor.F32,
		"DoubleStorage": tensor.F64, "ComplexFloatStorage": tensor.C64, "ComplexDoubleStorage": tensor.C128,
		"UntypedStorage": tensor.U8, "_UntypedStorage": tensor.U8,
	} {
		storageClasses[name] = &storageClass{name, d, int64(d.Size())}
	}
	for name, size := range map[string]int64{
		"QUInt8Storage": 1, "QInt8Storage": 1, "QInt32Storage": 4,
		"QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
	} {
		storageClasses[name] = &storageClass{name, tensor.Stored, size}
	}
}
