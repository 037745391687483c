package pytorch

import "strings"

// constructor makes a value out of the arguments that a pickle would call a
// class or function with.
type constructor func(m *machine, args []value) (value, error)

// constructorOf returns what stands for calling g, nil where g is unknown and
// the result is therefore opaque.
func constructorOf(g *global) constructor {
	switch g.module {
	case "torch._utils", "torch._tensor", "torch.tensor":
		return rebuilderOf(g.name)
	case "torch.nn.parameter", "torch.nn":
		switch g.name {
		case "Parameter", "Buffer":
			return newParameter
		}
	case "torch.jit._pickle":
		switch g.name {
		case "build_intlist", "build_boollist", "build_doublelist", "build_tensorlist", "restore_type_tag":
			return firstArg
		}
	case "collections":
		switch g.name {
		case "OrderedDict", "Counter":
			return newDict
		case "defaultdict":
			return emptyDict
		}
	case "builtins":
		switch g.name {
		case "list", "set", "frozenset":
			return newList
		case "tuple":
			return newTuple
		case "dict":
			return newDict
		case "bytes", "bytearray":
			return newBytes
		case "complex", "slice", "range", "xrange", "int", "float", "str", "bool", "object":
			return newInert
		}
	case "copyreg":
		switch g.name {
		case "_reconstructor":
			return reconstruct
		case "__newobj__":
			return newObj
		}
	case "torch":
		switch g.name {
		case "Size":
			return newTuple
		case "device":
			return newInert
		}
	case "torch.serialization":
		if g.name == "_get_layout" {
			return newInert
		}
	case "_codecs":
		if g.name == "encode" {
			return encode
		}
	case "numpy", "numpy.core.multiarray", "numpy.core.numeric":
		switch g.name {
		case "_reconstruct", "scalar", "ndarray", "dtype", "_frombuffer":
			return newInert
		}
		if g.module == "numpy" && numpyScalars[g.name] {
			return newInert
		}
	case "numpy.dtypes":
		if strings.HasSuffix(g.name, "DType") {
			return newInert
		}
	}
	return nil
}

// newBytes is bytes() and bytearray(), of nothing or of bytes.
func newBytes(_ *machine, args []value) (value, error) {
	if len(args) == 0 {
		return bytesValue(""), nil
	}
	if b, ok := args[0].(bytesValue); ok {
		return b, nil
	}
	return inert{}, nil
}

func newInert(*machine, []value) (value, error) { return inert{}, nil }

func emptyDict(m *machine, _ []value) (value, error) {
	m.meter.charge(costContainer)
	return &dict{}, nil
}

// newDict is dict(), of nothing, of a mapping or of a sequence of pairs.
func newDict(m *machine, args []value) (value, error) {
	d := &dict{}
	m.meter.charge(costContainer)
	if len(args) == 0 {
		return d, nil
	}
	if from, ok := args[0].(*dict); ok {
		m.meter.charge(int64(len(from.entries)) * 2 * costSlot)
		if !m.meter.over() {
			d.entries = append(d.entries, from.entries...)
		}
		return d, nil
	}
	pairs, ok := sequence(args[0])
	if !ok {
		return nil, m.fail("dict of %s", typeName(args[0]))
	}
	// The same pairs may be given many times, so the bill comes first.
	if m.meter.charge(int64(len(pairs)) * 2 * costSlot); m.meter.over() {
		return d, nil
	}
	for _, p := range pairs {
		kv, ok := sequence(p)
		if !ok || len(kv) != 2 || !hashable(kv[0]) {
			return nil, m.fail("dict of items that are not pairs")
		}
		d.entries = append(d.entries, entry{kv[0], kv[1]})
	}
	return d, nil
}

// newList is list(), set() and frozenset().
func newList(m *machine, args []value) (value, error) {
	l := &list{}
	m.meter.charge(costContainer)
	if len(args) == 0 {
		return l, nil
	}
	items, ok := sequence(args[0])
	if !ok {
		return inert{}, nil
	}
	if m.meter.charge(int64(len(items)) * costSlot); !m.meter.over() {
		l.items = append(l.items, items...)
	}
	return l, nil
}

// newTuple is tuple() and torch.Size(). The items are shared with the argument:
// nothing is ever stored in those of a tuple, and a list only grows.
func newTuple(m *machine, args []value) (value, error) {
	m.meter.charge(costContainer)
	if len(args) == 0 {
		return &tuple{}, nil
	}
	items, ok := sequence(args[0])
	if !ok {
		return inert{}, nil
	}
	return &tuple{items: items}, nil
}

// sequence returns the items of a list or tuple.
func sequence(v value) ([]value, bool) {
	switch v := v.(type) {
	case *list:
		return v.items, true
	case *tuple:
		return v.items, true
	}
	return nil, false
}

// encode is how protocol 2 writes bytes: as text, to be encoded as Latin-1.
func encode(m *machine, args []value) (value, error) {
	if len(args) == 0 {
		return nil, m.fail("_codecs.encode without arguments")
	}
	s, ok := args[0].(string)
	if !ok {
		return inert{}, nil
	}
	if m.meter.charge(2*int64(len(s)) + costBox); m.meter.over() {
		return inert{}, nil
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff { // another encoding than Latin-1: that of the text will do
			return bytesValue(s), nil
		}
		b = append(b, byte(r))
	}
	return bytesValue(b), nil
}

func firstArg(m *machine, args []value) (value, error) {
	if len(args) == 0 {
		return nil, m.fail("a list without items")
	}
	return args[0], nil
}

// reconstruct is how protocols 0 and 1 make an instance: class, base, state of
// the base.
func reconstruct(m *machine, args []value) (value, error) {
	if len(args) != 3 {
		return nil, m.fail("_reconstructor with %d arguments", len(args))
	}
	return m.call(args[0], nil)
}

func newObj(m *machine, args []value) (value, error) {
	if len(args) == 0 {
		return nil, m.fail("__newobj__ without a class")
	}
	// The class may not be this function again: nesting would recurse.
	if g, ok := args[0].(*global); ok && g.module == "copyreg" {
		return nil, m.fail("__newobj__ of %s", g)
	}
	return m.call(args[0], args[1:])
}

// call stands for calling f: nothing is called.
func (m *machine) call(f value, args []value) (value, error) {
	switch f := f.(type) {
	case *global:
		if c := constructorOf(f); c != nil {
			return c(m, args)
		}
		m.meter.charge(2 * costContainer)
		return &object{class: f}, nil
	case *storageClass, inert:
		return inert{}, nil
	case *object:
		// An instance that is called: a bound method, a partial function.
		return f, nil
	}
	return nil, m.fail("a call of %s", typeName(f))
}

// reduce is REDUCE and NEWOBJ.
func (m *machine) reduce() error {
	a, err := m.pop()
	if err != nil {
		return err
	}
	f, err := m.pop()
	if err != nil {
		return err
	}
	args, ok := a.(*tuple)
	if !ok {
		return m.fail("arguments that are not a tuple")
	}
	return m.pushCall(f, args.items)
}

func (m *machine) pushCall(f value, args []value) error {
	v, err := m.call(f, args)
	if err != nil {
		return err
	}
	m.push(v)
	return nil
}

// newObjEx is NEWOBJ with keyword arguments, which no class that is known takes.
func (m *machine) newObjEx() error {
	if _, err := m.pop(); err != nil {
		return err
	}
	return m.reduce()
}

// inst is INST: a class by two lines, its arguments above the mark.
func (m *machine) inst() error {
	g, err := m.globalLines()
	if err != nil {
		return err
	}
	args, err := m.popMark()
	if err != nil {
		return err
	}
	return m.pushCall(g, args)
}

// obj is OBJ: the class is the first value above the mark.
func (m *machine) obj() error {
	args, err := m.popMark()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return m.fail("OBJ without a class")
	}
	return m.pushCall(args[0], args[1:])
}

// build is BUILD: it sets the state of the instance below it. Attributes of a
// dict (an OrderedDict's _metadata) hold no tensors.
func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case *object:
		v.state = state
	case *tensorValue:
		v.state = state
	}
	return nil
}
