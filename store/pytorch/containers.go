package pytorch

// Opcodes that make and fill lists, tuples and dicts. Sets are kept as lists:
// nothing is ever looked up in them.

func (m *machine) pushList(items []value) {
	m.meter.charge(costContainer)
	m.push(&list{items: items})
}

func (m *machine) pushTuple(items []value) {
	m.meter.charge(costContainer)
	m.push(&tuple{items: items})
}

func (m *machine) pushDict(entries []entry) {
	m.meter.charge(costContainer)
	m.push(&dict{entries: entries})
}

func (m *machine) listFromMark() error {
	items, err := m.popMark()
	if err == nil {
		m.pushList(items)
	}
	return err
}

func (m *machine) tupleFromMark() error {
	items, err := m.popMark()
	if err == nil {
		m.pushTuple(items)
	}
	return err
}

func (m *machine) tupleOf(n int) error {
	items := make([]value, n)
	m.meter.charge(int64(n) * costBox)
	for i := n - 1; i >= 0; i-- {
		v, err := m.pop()
		if err != nil {
			return err
		}
		items[i] = v
	}
	m.pushTuple(items)
	return nil
}

func (m *machine) appendOne() error {
	v, err := m.pop()
	if err != nil {
		return err
	}
	return m.extend([]value{v})
}

func (m *machine) appendMany() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	return m.extend(items)
}

// extend appends to the list on top of the stack. An instance of some class
// takes items too (a subclass of list), but they are of no interest.
func (m *machine) extend(items []value) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case *list:
		m.meter.charge(int64(len(items)) * costSlot)
		v.items = append(v.items, items...)
	case *object, inert:
	default:
		return m.fail("items appended to %s", typeName(v))
	}
	return nil
}

func (m *machine) dictFromMark() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	m.pushDict(nil)
	return m.setAll(items)
}

func (m *machine) setItem() error {
	v, err := m.pop()
	if err != nil {
		return err
	}
	k, err := m.pop()
	if err != nil {
		return err
	}
	return m.setAll([]value{k, v})
}

func (m *machine) setItems() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	return m.setAll(items)
}

// setAll sets keys and values, alternating, in the dict on top of the stack.
func (m *machine) setAll(items []value) error {
	if len(items)%2 != 0 {
		return m.fail("a dict key without a value")
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case *dict:
		m.meter.charge(int64(len(items)) * costSlot)
		for i := 0; i < len(items); i += 2 {
			if !hashable(items[i]) {
				return m.fail("%s as a dict key", typeName(items[i]))
			}
			v.entries = append(v.entries, entry{items[i], items[i+1]})
		}
	case *object, inert:
	default:
		return m.fail("items set in %s", typeName(v))
	}
	return nil
}

func hashable(key value) bool {
	switch key.(type) {
	case *list, *dict:
		return false
	}
	return true
}

// typeName names the type of a value for messages, as Python does.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case float64:
		return "float"
	case string, long:
		return "str"
	case bytesValue:
		return "bytes"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *dict:
		return "dict"
	case *storageRef:
		return "a storage"
	case *tensorValue:
		return "a tensor"
	case *object:
		return clip(v.class.String())
	case *global, *storageClass:
		return "a class"
	case inert:
		return "an inert value"
	}
	return "int"
}
