package pytorch

import (
	"nibble/internal/rule"
)

// machine is the stack machine that pickles are programs for. Where Python
// would import a module, call a function or set an attribute, the machine
// builds a description of a tensor or an inert value instead.
type machine struct {
	src   *source
	meter *meter
	// persist resolves a persistent id: the container's part of the work.
	persist func(id value) (value, error)

	stack []value
	marks []int // stack heights, innermost last
	memo  memo
	at    int64 // offset of the current opcode
	done  bool
}

// maxProto is the newest protocol of Python 3.14.
const maxProto = 5

// load runs the pickle that starts at the source's position and leaves the
// source behind its STOP.
func (m *machine) load() (value, error) {
	m.stack, m.marks, m.memo, m.done = nil, nil, memo{}, false
	for !m.done {
		m.at = m.src.pos
		op, err := m.src.byte()
		if err != nil {
			return nil, err
		}
		f := opcodes[op]
		if f == nil {
			return nil, m.fail("unknown opcode 0x%02x", op)
		}
		if err := f(m); err != nil {
			return nil, err
		}
		m.meter.charge(1) // for the time: not every opcode makes something
		if m.meter.over() {
			return nil, m.meter.err()
		}
	}
	return m.pop()
}

func (m *machine) fail(format string, args ...any) error {
	return m.src.fail(m.at, rule.Pickle, "malformed pickle: "+format, args...)
}

func (m *machine) push(v value) {
	m.meter.charge(costSlot)
	m.stack = append(m.stack, v)
}

// floor is the height below which opcodes may not reach: the innermost mark.
func (m *machine) floor() int {
	if n := len(m.marks); n > 0 {
		return m.marks[n-1]
	}
	return 0
}

func (m *machine) pop() (value, error) {
	n := len(m.stack)
	if n <= m.floor() {
		return nil, m.fail("stack underflow")
	}
	v := m.stack[n-1]
	m.stack[n-1] = nil
	m.stack = m.stack[:n-1]
	return v, nil
}

// top returns the value that an opcode changes in place.
func (m *machine) top() (value, error) {
	n := len(m.stack)
	if n <= m.floor() {
		return nil, m.fail("stack underflow")
	}
	return m.stack[n-1], nil
}

// popMark returns a copy of the values above the innermost mark and removes
// them and the mark.
func (m *machine) popMark() ([]value, error) {
	n := len(m.marks)
	if n == 0 {
		return nil, m.fail("no mark on the stack")
	}
	from := m.marks[n-1]
	m.marks = m.marks[:n-1]
	m.meter.charge(int64(len(m.stack)-from) * costBox)
	items := append([]value(nil), m.stack[from:]...)
	clear(m.stack[from:])
	m.stack = m.stack[:from]
	return items, nil
}

// memo holds the values that a pickle numbers. Picklers number from 0 or 1
// without gaps, so a slice does; a hostile index costs a map entry.
type memo struct {
	dense  []value
	sparse map[uint64]value
	n      int
}

// hole marks an index of memo.dense that was never put.
type hole struct{}

func (t *memo) put(i uint64, v value) {
	const gap = 8
	if i < uint64(len(t.dense)) {
		if t.dense[i] == (hole{}) {
			t.n++
		}
		t.dense[i] = v
		return
	}
	if i <= uint64(len(t.dense))+gap && len(t.sparse) == 0 {
		for uint64(len(t.dense)) < i {
			t.dense = append(t.dense, hole{})
		}
		t.dense = append(t.dense, v)
		t.n++
		return
	}
	if t.sparse == nil {
		t.sparse = make(map[uint64]value)
	}
	if _, ok := t.sparse[i]; !ok {
		t.n++
	}
	t.sparse[i] = v
}

func (t *memo) get(i uint64) (value, bool) {
	if i < uint64(len(t.dense)) {
		v := t.dense[i]
		return v, v != (hole{})
	}
	v, ok := t.sparse[i]
	return v, ok
}
