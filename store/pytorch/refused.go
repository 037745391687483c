package pytorch

import "nibble/tensor"

// Kinds of tensors that are listed but not read: their values are not simply
// what a storage holds.

// rebuildQTensor is _rebuild_qtensor(storage, offset, size, stride, quantizer,
// requires_grad, hooks): torch's own quantization, whose values are not those
// of the storage.
func rebuildQTensor(m *machine, args []value) (value, error) {
	t := m.strided(args, 5)
	t.dtype = tensor.Stored
	t.refuse("qtensor", "a tensor quantized by torch (qtensor) is not read")
	return t, nil
}

// rebuildSparse is _rebuild_sparse_tensor(layout, data) and its CSR twin, where
// data is indices, values and size.
func rebuildSparse(m *machine, args []value) (value, error) {
	t := &tensorValue{}
	m.meter.charge(costTensor + costError)
	t.refuse("sparse", "a sparse tensor is not read")
	if len(args) < 2 {
		return t, nil
	}
	data, _ := sequence(args[1])
	m.meter.charge(int64(len(data)) * costError) // the same data may be given many times
	for _, v := range data {
		switch v := v.(type) {
		case *tensorValue: // the last one is the values
			t.dtype = v.dtype
		case *tuple, *list:
			if shape, err := m.ints(v); err == nil {
				t.shape = shape
			}
		}
	}
	return t, nil
}

// rebuildMeta is _rebuild_meta_tensor_no_storage(dtype, size, stride, grad).
func rebuildMeta(m *machine, args []value) (value, error) {
	if len(args) < 3 {
		return m.broken("a meta tensor of %d arguments", len(args)), nil
	}
	return m.noStorage("meta", args[0], args[1], args[2])
}

// rebuildWrapper is _rebuild_wrapper_subclass(class, dtype, size, stride,
// offset, layout, device, grad).
func rebuildWrapper(m *machine, args []value) (value, error) {
	if len(args) < 4 {
		return m.broken("a wrapper subclass of %d arguments", len(args)), nil
	}
	return m.noStorage("wrapper subclass", args[1], args[2], args[3])
}

func (m *machine) noStorage(kind string, dtype, size, stride value) (value, error) {
	m.meter.charge(costTensor + costError)
	t := &tensorValue{}
	t.dtype, _ = dtype.(tensor.DType)
	t.refuse(kind, "a %s tensor has no data", kind)
	if err := m.sizes(t, size, stride); err != nil {
		t.err = err
	}
	return t, nil
}

// refuse makes a constructor for a kind of tensor of which only the kind is said.
func refuse(kind string) constructor {
	return func(m *machine, _ []value) (value, error) {
		m.meter.charge(costTensor + costError)
		t := &tensorValue{}
		t.refuse(kind, "a %s tensor is not read", kind)
		return t, nil
	}
}
