package pytorch

import (
	"math/big"

	"nibble/internal/rule"
	"nibble/tensor"
)

// rebuilderOf returns what stands for one of the functions of torch that make
// tensors, nil for other names.
func rebuilderOf(name string) constructor {
	switch name {
	case "_rebuild_tensor":
		return rebuildTensor
	case "_rebuild_tensor_v2":
		return rebuildTensorV2
	case "_rebuild_tensor_v3":
		return rebuildTensorV3
	case "_rebuild_parameter":
		return rebuildParameter
	case "_rebuild_parameter_with_state":
		return rebuildParameterWithState
	case "_rebuild_from_type", "_rebuild_from_type_v2":
		return rebuildFromType
	case "_rebuild_device_tensor_from_cpu_tensor":
		return firstTensor
	case "_rebuild_qtensor":
		return rebuildQTensor
	case "_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor":
		return rebuildSparse
	case "_rebuild_meta_tensor_no_storage":
		return rebuildMeta
	case "_rebuild_wrapper_subclass":
		return rebuildWrapper
	case "_rebuild_nested_tensor":
		return refuse("nested")
	case "_rebuild_device_tensor_from_numpy", "_rebuild_xla_tensor", "_rebuild_mlc_tensor":
		return refuse("device")
	}
	return nil
}

// rebuildTensor is _rebuild_tensor(storage, offset, size, stride).
func rebuildTensor(m *machine, args []value) (value, error) {
	return m.strided(args, 4), nil
}

// rebuildTensorV2 adds requires_grad, backward_hooks and, since torch 2.0,
// metadata.
func rebuildTensorV2(m *machine, args []value) (value, error) {
	t := m.strided(args, 6)
	if len(args) > 6 {
		t.lazyBits(args[6])
	}
	return t, nil
}

// rebuildTensorV3 has a dtype between the hooks and the metadata: the storage
// is untyped.
func rebuildTensorV3(m *machine, args []value) (value, error) {
	if len(args) < 7 {
		return m.broken("a tensor of %d arguments", len(args)), nil
	}
	t := m.view(args[:4], args[6])
	if len(args) > 7 {
		t.lazyBits(args[7])
	}
	return t, nil
}

// lazyBits refuses tensors whose bytes are not yet their values: torch
// conjugates and negates lazily, and saves the bit that says so.
func (t *tensorValue) lazyBits(metadata value) {
	d, ok := metadata.(*dict)
	if !ok || t.err != nil {
		return
	}
	for _, bit := range []string{"conj", "neg"} {
		if v, _ := d.get(bit); v == true {
			t.refuse(bit, "a tensor with the %s bit is not read: its bytes are not its values", bit)
			return
		}
	}
}

func (t *tensorValue) refuse(kind, format string, args ...any) {
	t.kind = kind
	t.storage = -1
	t.err = rule.New(rule.TorchClass, format, args...)
}

// broken is a tensor whose arguments do not make one. The pickle itself is
// sound, and so may be the tensors beside it.
func (m *machine) broken(format string, args ...any) *tensorValue {
	m.meter.charge(costTensor + costError)
	return &tensorValue{storage: -1, err: m.malformed(format, args...)}
}

// malformed is an error that concerns a tensor or a storage, not the pickle.
func (m *machine) malformed(format string, args ...any) *rule.Error {
	return m.src.fail(m.at, rule.Pickle, "malformed tensor: "+format, args...)
}

// strided makes a tensor of the dtype of its storage out of the first four of
// at least n arguments.
func (m *machine) strided(args []value, n int) *tensorValue {
	if len(args) < n {
		return m.broken("a tensor of %d arguments", len(args))
	}
	return m.view(args[:4], nil)
}

// view makes a tensor of storage, offset, size and stride. dtype is nil where
// that of the storage counts.
func (m *machine) view(args []value, dtype value) *tensorValue {
	m.meter.charge(costTensor)
	t := &tensorValue{storage: -1}
	err := m.sizes(t, args[2], args[3])
	start, bad := m.integer(args[1], "storage offset")
	if err == nil {
		err = bad
	}
	ref, ok := args[0].(*storageRef)
	if !ok {
		m.meter.charge(costError)
		t.refuse("", "a tensor over %s is not read", typeName(args[0]))
		return t
	}
	elem, bad := t.typed(ref, dtype)
	if err == nil {
		err = bad
	}
	if err == nil {
		err = t.place(ref, start, elem)
	}
	if err != nil {
		m.meter.charge(costError)
		t.err, t.storage = err, -1
	}
	return t
}

// sizes sets the shape and strides of t. Their values are checked later; here
// only that they are integers.
func (m *machine) sizes(t *tensorValue, size, stride value) (err *rule.Error) {
	if t.shape, err = m.ints(size); err != nil {
		return err
	}
	t.strides, err = m.ints(stride)
	return err
}

// maxRank is the largest number of dimensions that torch can compute with.
const maxRank = 64

func (m *machine) ints(v value) ([]int64, *rule.Error) {
	items, ok := sequence(v)
	if !ok {
		return nil, m.malformed("%s as a size", typeName(v))
	}
	if len(items) > maxRank {
		return nil, m.src.fail(m.at, rule.TorchLimit, "limit exceeded: a tensor of %d dimensions", len(items))
	}
	m.meter.charge(int64(len(items)) * 8)
	out := make([]int64, len(items))
	for i, it := range items {
		n, err := m.integer(it, "size")
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// integer returns v, which counts elements and is called what in messages.
func (m *machine) integer(v value, what string) (int64, *rule.Error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case *big.Int:
		return 0, m.src.fail(m.at, rule.TorchGeometry, "%s of %d bits overflows", what, v.BitLen())
	}
	return 0, m.malformed("%s as a %s", typeName(v), what)
}

// typed sets the dtype of t and returns the size of an element.
func (t *tensorValue) typed(ref *storageRef, dtype value) (elem int64, err *rule.Error) {
	if dtype == nil {
		t.dtype = ref.class.dtype
		if t.dtype == tensor.Stored && ref.err == nil {
			return 0, rule.New(rule.TorchClass, "dtype of torch.%s is not read", ref.class.name)
		}
		return ref.class.size, ref.err
	}
	d, ok := dtype.(tensor.DType)
	if !ok || d.Size() == 0 {
		return 0, rule.New(rule.TorchClass, "dtype %s is not read", describe(dtype))
	}
	t.dtype = d
	return int64(d.Size()), ref.err
}

// describe names a value for a message: a class by its name.
func describe(v value) string {
	switch v := v.(type) {
	case *global:
		return clip(v.String())
	case tensor.DType:
		return "torch." + v.Torch()
	}
	return typeName(v)
}

// clip shortens a string of the file for a message. Messages are kept, one for
// each tensor that is refused, and must not multiply what the file holds once.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// rebuildParameter is _rebuild_parameter(data, requires_grad, hooks).
func rebuildParameter(m *machine, args []value) (value, error) {
	return firstTensor(m, args)
}

// newParameter is Parameter(data, requires_grad), as torch before 1.0 wrote it.
func newParameter(m *machine, args []value) (value, error) {
	if len(args) == 0 {
		return inert{}, nil
	}
	return firstTensor(m, args)
}

func firstTensor(m *machine, args []value) (value, error) {
	if len(args) == 0 {
		return m.broken("a parameter without data"), nil
	}
	switch args[0].(type) {
	case *tensorValue, *object:
		return args[0], nil
	}
	return m.broken("a parameter of %s", typeName(args[0])), nil
}

// rebuildParameterWithState has a fourth argument, the attributes that a
// subclass adds: how bitsandbytes keeps the quant_state of a Params4bit.
func rebuildParameterWithState(m *machine, args []value) (value, error) {
	if len(args) < 4 {
		return m.broken("_rebuild_parameter_with_state with %d arguments", len(args)), nil
	}
	return m.withState(args[0], nil, args[3])
}

// withState is a copy of tensor v with the attributes of a subclass: v itself
// may be in use elsewhere.
func (m *machine) withState(v value, class *global, state value) (value, error) {
	t, ok := v.(*tensorValue)
	if !ok {
		return firstTensor(m, []value{v})
	}
	m.meter.charge(costTensor)
	c := *t
	c.class, c.state = class, state
	return &c, nil
}

// rebuildFromType is _rebuild_from_type_v2(func, type, args, state): call func,
// then make the result a type with that state.
func rebuildFromType(m *machine, args []value) (value, error) {
	if len(args) != 4 {
		return m.broken("_rebuild_from_type with %d arguments", len(args)), nil
	}
	inner, ok := args[2].(*tuple)
	if !ok {
		return m.broken("_rebuild_from_type with %s as arguments", typeName(args[2])), nil
	}
	// func may neither be this function again nor one that calls it: nesting
	// would recurse.
	if g, ok := args[0].(*global); !ok || g.module == "copyreg" || g.name == "_rebuild_from_type" || g.name == "_rebuild_from_type_v2" {
		return m.broken("_rebuild_from_type of %s", describe(args[0])), nil
	}
	v, err := m.call(args[0], inner.items)
	if err != nil {
		return nil, err
	}
	class, _ := args[1].(*global)
	return m.withState(v, class, args[3])
}
