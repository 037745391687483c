package pytorch

import (
	"encoding/binary"
	"math"
)

// opcodes is what each opcode of protocols 0 to 5 does; nil where there is none.
var opcodes = [256]func(*machine) error{
	'(':  (*machine).mark,
	'.':  func(m *machine) error { m.done = true; return nil },
	'0':  (*machine).popOne,
	'1':  func(m *machine) error { _, err := m.popMark(); return err },
	'2':  (*machine).dup,
	0x80: (*machine).proto,
	0x95: (*machine).frame,

	'N':  func(m *machine) error { m.push(nil); return nil },
	0x88: func(m *machine) error { m.push(true); return nil },
	0x89: func(m *machine) error { m.push(false); return nil },
	'I':  (*machine).textInt,
	'L':  (*machine).textLong,
	'F':  (*machine).textFloat,
	'J':  func(m *machine) error { return m.fixedInt(4, true) },
	'K':  func(m *machine) error { return m.fixedInt(1, false) },
	'M':  func(m *machine) error { return m.fixedInt(2, false) },
	0x8a: func(m *machine) error { return m.binLong(1) },
	0x8b: func(m *machine) error { return m.binLong(4) },
	'G':  (*machine).binFloat,

	'S':  (*machine).textString,
	'V':  (*machine).textUnicode,
	'T':  func(m *machine) error { return m.counted(4, decodePy2) },
	'U':  func(m *machine) error { return m.counted(1, decodePy2) },
	'X':  func(m *machine) error { return m.counted(4, decodeUTF8) },
	0x8c: func(m *machine) error { return m.counted(1, decodeUTF8) },
	0x8d: func(m *machine) error { return m.counted(8, decodeUTF8) },
	'B':  func(m *machine) error { return m.counted(4, decodeRaw) },
	'C':  func(m *machine) error { return m.counted(1, decodeRaw) },
	0x8e: func(m *machine) error { return m.counted(8, decodeRaw) },
	0x96: func(m *machine) error { return m.counted(8, decodeRaw) },
	0x97: func(m *machine) error { m.push(inert{}); return nil },
	0x98: func(m *machine) error { _, err := m.top(); return err },

	']':  func(m *machine) error { m.pushList(nil); return nil },
	'l':  (*machine).listFromMark,
	'a':  (*machine).appendOne,
	'e':  (*machine).appendMany,
	')':  func(m *machine) error { m.pushTuple(nil); return nil },
	't':  (*machine).tupleFromMark,
	0x85: func(m *machine) error { return m.tupleOf(1) },
	0x86: func(m *machine) error { return m.tupleOf(2) },
	0x87: func(m *machine) error { return m.tupleOf(3) },
	'}':  func(m *machine) error { m.pushDict(nil); return nil },
	'd':  (*machine).dictFromMark,
	's':  (*machine).setItem,
	'u':  (*machine).setItems,
	0x8f: func(m *machine) error { m.pushList(nil); return nil },
	0x90: (*machine).appendMany,
	0x91: (*machine).listFromMark,

	'p':  (*machine).textPut,
	'q':  func(m *machine) error { return m.put(1) },
	'r':  func(m *machine) error { return m.put(4) },
	0x94: (*machine).memoize,
	'g':  (*machine).textGet,
	'h':  func(m *machine) error { return m.get(1) },
	'j':  func(m *machine) error { return m.get(4) },

	'c':  (*machine).global,
	0x93: (*machine).stackGlobal,
	0x82: func(m *machine) error { return m.extension(1) },
	0x83: func(m *machine) error { return m.extension(2) },
	0x84: func(m *machine) error { return m.extension(4) },
	'R':  (*machine).reduce,
	'b':  (*machine).build,
	'i':  (*machine).inst,
	'o':  (*machine).obj,
	0x81: (*machine).reduce, // NEWOBJ: the class is called with the same arguments
	0x92: (*machine).newObjEx,
	'P':  (*machine).textPersID,
	'Q':  (*machine).binPersID,
}

// uint reads a little-endian unsigned integer of n bytes.
func (m *machine) uint(n int) (uint64, error) {
	b, err := m.src.next(n)
	if err != nil {
		return 0, err
	}
	var w [8]byte
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:]), nil
}

func (m *machine) proto() error {
	p, err := m.src.byte()
	if err == nil && p > maxProto {
		err = m.fail("protocol %d is not supported", p)
	}
	return err
}

// frame checks a frame's length, which is a hint for readers that buffer.
func (m *machine) frame() error {
	n, err := m.uint(8)
	if err == nil && n > uint64(m.src.left) {
		err = m.src.truncated()
	}
	return err
}

func (m *machine) mark() error {
	m.meter.charge(costBox)
	m.marks = append(m.marks, len(m.stack))
	return nil
}

// popOne is POP, which takes a mark away when there is nothing above it.
func (m *machine) popOne() error {
	if len(m.marks) > 0 && len(m.stack) == m.floor() {
		m.marks = m.marks[:len(m.marks)-1]
		return nil
	}
	_, err := m.pop()
	return err
}

func (m *machine) dup() error {
	v, err := m.top()
	if err == nil {
		m.push(v)
	}
	return err
}

func (m *machine) binFloat() error {
	b, err := m.src.next(8)
	if err == nil {
		m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	}
	return err
}

func (m *machine) put(n int) error {
	i, err := m.uint(n)
	if err != nil {
		return err
	}
	return m.memoPut(i)
}

func (m *machine) memoize() error { return m.memoPut(uint64(m.memo.n)) }

func (m *machine) memoPut(i uint64) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	m.meter.charge(costSlot)
	m.memo.put(i, v)
	return nil
}

func (m *machine) get(n int) error {
	i, err := m.uint(n)
	if err != nil {
		return err
	}
	return m.memoGet(i)
}

func (m *machine) memoGet(i uint64) error {
	v, ok := m.memo.get(i)
	if !ok {
		return m.fail("memo has no value %d", i)
	}
	m.push(v)
	return nil
}

// name reads one of the two lines of GLOBAL and INST.
func (m *machine) name() (string, error) {
	s, kept, err := m.src.line()
	if err == nil && (!kept || len(s) > maxName) {
		err = m.fail("name of a global longer than %d bytes", maxName)
	}
	return s, err
}

func (m *machine) globalLines() (value, error) {
	module, err := m.name()
	if err != nil {
		return nil, err
	}
	name, err := m.name()
	if err != nil {
		return nil, err
	}
	return m.resolve(module, name)
}

func (m *machine) global() error {
	g, err := m.globalLines()
	if err == nil {
		m.push(g)
	}
	return err
}

func (m *machine) stackGlobal() error {
	n, err := m.pop()
	if err != nil {
		return err
	}
	mod, err := m.pop()
	if err != nil {
		return err
	}
	module, ok1 := mod.(string)
	name, ok2 := n.(string)
	if !ok1 || !ok2 {
		return m.fail("STACK_GLOBAL of values that are not strings")
	}
	if len(module) > maxName || len(name) > maxName {
		return m.fail("name of a global longer than %d bytes", maxName)
	}
	g, err := m.resolve(readable(module), readable(name))
	if err == nil {
		m.push(g)
	}
	return err
}

// extension is a class by its number in copyreg's registry, of which a file
// can know nothing.
func (m *machine) extension(n int) error {
	code, err := m.uint(n)
	if err == nil {
		err = m.fail("extension code %d", code)
	}
	return err
}

func (m *machine) textPersID() error {
	s, kept, err := m.src.line()
	if err != nil {
		return err
	}
	if !kept {
		return m.fail("persistent id of more than %d bytes", maxText)
	}
	return m.persistent(s)
}

func (m *machine) binPersID() error {
	id, err := m.pop()
	if err != nil {
		return err
	}
	return m.persistent(id)
}

func (m *machine) persistent(id value) error {
	if m.persist == nil {
		return m.fail("persistent id where there are no storages")
	}
	v, err := m.persist(id)
	if err != nil {
		return err
	}
	m.meter.charge(costStorage)
	m.push(v)
	return nil
}
