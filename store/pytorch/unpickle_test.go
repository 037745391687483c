package pytorch

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"nibble/internal/rule"
)

func unpickle(p string) (value, error) {
	mt := &meter{max: 1 << 40}
	m := &machine{src: newSource(strings.NewReader(p), 0, int64(len(p)), mt), meter: mt}
	return m.load()
}

// format prints a value as Python would, sets as lists and objects by class.
func format(v value) string {
	var b strings.Builder
	switch v := v.(type) {
	case *list:
		b.WriteByte('[')
		for i, it := range v.items {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(format(it))
		}
		b.WriteByte(']')
	case *dict:
		b.WriteByte('{')
		for i, e := range v.entries {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(format(e.key) + ": " + format(e.val))
		}
		b.WriteByte('}')
	case *object:
		b.WriteString("<" + v.class.String() + " " + format(v.state) + ">")
	default:
		repr(&b, v, maxReprDepth)
	}
	return b.String()
}

func TestUnpicklePython(t *testing.T) {
	for proto, p := range pythonPickles {
		v, err := unpickle(p)
		if err != nil {
			t.Fatalf("protocol %d: %v", proto, err)
		}
		if got := format(v); got != pythonObject {
			t.Errorf("protocol %d:\ngot  %s\nwant %s", proto, got, pythonObject)
		}
	}
}

// TestUnpickle covers opcodes that today's pickler does not write.
func TestUnpickle(t *testing.T) {
	for _, c := range []struct{ name, pickle, want string }{
		{"python 2 str", "S'a\\x41\\101\\n\\q'\n.", `'aAA\n\\q'`},
		{"python 2 str in double quotes", "S\"it's\"\n.", `"it's"`},
		{"python 2 str as UTF-8", "U\x02\xc3\xa9.", "'é'"},
		{"python 2 str as Latin-1", "U\x01\xe9.", "'é'"},
		{"python 2 long str", "T\x03\x00\x00\x00abc.", "'abc'"},
		{"unicode escapes", "V\\u20ac\\U0001F600\xe9\n.", "'€😀é'"},
		{"lone surrogate", "X\x03\x00\x00\x00\xed\xa0\x80.", `'\ud800'`},
		{"last surrogate", "X\x03\x00\x00\x00\xed\xbf\xbf.", `'\udfff'`},
		{"pair of surrogates", "X\x06\x00\x00\x00\xed\xa0\xbd\xed\xb9\x82.", `'\ud83d\ude42'`}, // as Python shows it
		{"surrogates as escapes", "V\\ud83d\\U0000de42\n.", `'\ud83d\ude42'`},
		{"backslashes before a letter", "V\\\\u0041\\u0042\n.", `'\\\\u0041B'`},
		{"short bytes", "C\x02ab.", "b'ab'"},
		{"bytes 8", "\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab.", "b'ab'"},
		{"bytearray 8", "\x96\x02\x00\x00\x00\x00\x00\x00\x00ab.", "b'ab'"},
		{"unicode 8", "\x8d\x02\x00\x00\x00\x00\x00\x00\x00ab.", "'ab'"},
		{"out-of-band buffer", "\x97\x98.", "<an inert value>"},
		{"empty long", "\x8a\x00.", "0"},
		{"negative long", "\x8a\x01\xff.", "-1"},
		{"long 4", "\x8b\x02\x00\x00\x00\x00\x01.", "256"},
		{"text long", "L-5L\n.", "-5"},
		{"text bool", "(I01\nI00\nl.", "[True, False]"},
		{"text float", "F-1.5\n.", "-1.5"},
		{"text float beyond the range", "(F1e400\nF-1e400\nF1e-400\nl.", "[inf, -inf, 0.0]"},
		{"dup", "K\x012\x86.", "(1, 1)"},
		{"pop", "K\x01K\x020.", "1"},
		{"pop a mark", "K\x01(0.", "1"},
		{"pop to a mark", "K\x01(K\x02K\x031.", "1"},
		{"dict from a mark", "(K\x01K\x02d.", "{1: 2}"},
		{"append", "]K\x01a.", "[1]"},
		{"set item", "}K\x01K\x02s.", "{1: 2}"},
		{"set", "\x8f(K\x01K\x02\x90.", "[1, 2]"},
		{"frozenset", "(K\x01\x91.", "[1]"},
		{"memo from 1", "]p1\n0g1\n.", "[]"},
		{"memo at random", "]r\x00\x00\x00\xff0j\x00\x00\x00\xff.", "[]"},
		{"memo with a number put twice", "Nr\x09\x00\x00\x00q\x00q\x01q\x09K\x07\x9400h\x03.", "7"},
		{"memoize", "K\x01\x940h\x00.", "1"},
		{"inst", "(icollections\nOrderedDict\n.", "{}"},
		{"obj", "(c__main__\nFoo\no.", "<__main__.Foo None>"},
		{"newobj ex", "c__main__\nFoo\n)}\x92.", "<__main__.Foo None>"},
		{"build", "c__main__\nFoo\n)\x81}K\x01K\x02sb.", "<__main__.Foo {1: 2}>"},
		{"reconstructor", "ccopy_reg\n_reconstructor\n(c__main__\nFoo\nc__builtin__\nobject\nNtR.", "<__main__.Foo None>"},
		{"stack global", "\x8c\x05torch\x8c\x07float16\x93.", "torch.float16"},
		{"dtype by another name", "ctorch\nhalf\n.", "torch.float16"},
		{"class", "ctorch\nFloatStorage\n.", "<class 'torch.FloatStorage'>"},
		{"ordered dict of pairs", "ccollections\nOrderedDict\n(]](K\x01K\x02eatR.", "{1: 2}"},
		{"dict of dict", "cbuiltins\ndict\n(}K\x01K\x02stR.", "{1: 2}"},
		{"default dict", "ccollections\ndefaultdict\n(cbuiltins\nint\ntR.", "{}"},
		{"size", "ctorch\nSize\n(K\x01K\x02\x86tR.", "(1, 2)"},
		{"set of list", "cbuiltins\nset\n(](K\x01etR.", "[1]"},
		{"encoded bytes", "c_codecs\nencode\n(X\x03\x00\x00\x00a\xc3\xa9X\x06\x00\x00\x00latin1tR.", `b'a\xe9'`},
		{"bytearray", "c__builtin__\nbytearray\n(c_codecs\nencode\n(U\x01aU\x06latin1tRtR.", "b'a'"},
		{"items for an unknown class", "c__main__\nFoo\n)R(K\x01e(K\x01K\x02u.", "<__main__.Foo None>"},
		{"call of an unknown instance", "c__main__\nFoo\n)R)R.", "<__main__.Foo None>"},
	} {
		v, err := unpickle(c.pickle)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := format(v); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestUnpickleMalformed(t *testing.T) {
	for _, c := range []struct {
		name, pickle string
		rule         rule.ID
		words        string
	}{
		{"nothing", "", rule.Pickle, "truncated"},
		{"no stop", "N", rule.Pickle, "truncated"},
		{"empty stack", ".", rule.Pickle, "underflow"},
		{"pop below a mark", "K\x01(\x85.", rule.Pickle, "underflow"},
		{"top below a mark", "](K\x01a.", rule.Pickle, "underflow"},
		{"no mark", "t.", rule.Pickle, "mark"},
		{"memo unset", "h\x05.", rule.Pickle, "memo has no value 5"},
		{"memo hole", "]q\x020h\x01.", rule.Pickle, "memo has no value 1"},
		{"memo index", "]p-1\n.", rule.Pickle, "memo index"},
		{"unclosed line", "cos", rule.Pickle, "truncated"},
		{"append to a number", "K\x01K\x02a.", rule.Pickle, "items appended to int"},
		{"item of a list", "]K\x01K\x02s.", rule.Pickle, "items set in list"},
		{"list as a key", "}]Ns.", rule.Pickle, "list as a dict key"},
		{"odd items", "(K\x01d.", rule.Pickle, "without a value"},
		{"call of a number", "K\x01)R.", rule.Pickle, "call of int"},
		{"arguments of no tuple", "c__main__\nFoo\n]R.", rule.Pickle, "not a tuple"},
		{"stack global of numbers", "K\x01K\x02\x93.", rule.Pickle, "not strings"},
		{"extension", "\x82\x01.", rule.Pickle, "extension code 1"},
		{"persistent id", "NQ.", rule.Pickle, "no storages"},
		{"bad UTF-8", "X\x01\x00\x00\x00\xff.", rule.Pickle, "UTF-8"},
		{"no integer", "I1x\n.", rule.Pickle, "not an integer"},
		{"no float", "F1x\n.", rule.Pickle, "not a float"},
		{"no quotes", "Sabc\n.", rule.Pickle, "quotes"},
		{"broken escape", "S'\\x4'\n.", rule.Pickle, "escape"},
		{"broken unicode escape", "V\\u12\n.", rule.Pickle, "escape"},
		{"string beyond the end", "X\xff\xff\xff\x7fabc.", rule.Pickle, "truncated"},
		{"string beyond any end", "\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.", rule.Pickle, "truncated"},
		{"negative long 4", "\x8b\xff\xff\xff\xff.", rule.Pickle, "negative"},
		{"long global name", "c" + strings.Repeat("a", maxName+1) + "\nb\n.", rule.Pickle, "longer"},
		{"huge integer", "\x8b\x01\x08\x00\x00" + strings.Repeat("\x01", 2049) + ".", rule.TorchLimit, "2049 bytes"},

		{"os", "cos\npopen\n.", rule.UnsafeGlobal, "os.popen"},
		{"submodule", "cos.path\njoin\n.", rule.UnsafeGlobal, "os.path.join"},
		{"builtin", "c__builtin__\ngetattr\n.", rule.UnsafeGlobal, "__builtin__.getattr"},
		{"by inst", "(icommands\ngetoutput\n0(iposix\nsystem\n.", rule.UnsafeGlobal, "posix.system"},
		{"by attribute", "\x8c\x05torch\x8c\x09os.system\x93.", rule.UnsafeGlobal, "torch.os.system"},
		{"by attribute of builtins", "\x8c\x05torch\x8c\x11__builtins__.eval\x93.", rule.UnsafeGlobal, "eval"},
		{"method of a builtin", "\x8c\x08builtins\x8c\x0deval.__call__\x93.", rule.UnsafeGlobal, "builtins.eval"},
		{"never called", "csubprocess\nPopen\n0N.", rule.UnsafeGlobal, "subprocess.Popen"},
	} {
		_, err := unpickle(c.pickle)
		var e *rule.Error
		if !errors.As(err, &e) || e.Rule != c.rule || !strings.Contains(e.Error(), c.words) {
			t.Errorf("%s: error %v, want %s with %q", c.name, err, c.rule, c.words)
		} else if e.Offset < 0 || e.Offset > int64(len(c.pickle)) {
			t.Errorf("%s: error at %d of %d bytes", c.name, e.Offset, len(c.pickle))
		}
	}
}

// TestLongText protects payloads: a string too long to be a name is passed over
// in the file, not read.
func TestLongText(t *testing.T) {
	w := new(writer)
	w.op('(', 'B', "\x00\x00\x20\x00", strings.Repeat("x", 2<<20), 'X', "\x01\x00\x01\x00", strings.Repeat("y", 65537))
	w.op('S', "'"+strings.Repeat("z", 70000)+"'\n", 'l', '.')
	r := &countingReader{r: bytes.NewReader(w.Bytes())}
	mt := &meter{max: 1 << 40}
	m := &machine{src: newSource(r, 0, int64(w.Len()), mt), meter: mt}
	v, err := m.load()
	if err != nil {
		t.Fatal(err)
	}
	if got := format(v); got != "[<str of 2097152 bytes>, <str of 65537 bytes>, <str of 65536 bytes>]" {
		t.Error(got)
	}
	if r.n > 300_000 {
		t.Errorf("%d bytes read of %d", r.n, w.Len())
	}
}

type countingReader struct {
	r *bytes.Reader
	n int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += int64(n)
	return n, err
}

// TestSmallWindow protects the window: the same values come out of one that
// every opcode crosses.
func TestSmallWindow(t *testing.T) {
	for _, p := range pythonPickles {
		mt := &meter{max: 1 << 40}
		src := newSource(strings.NewReader(p), 0, int64(len(p)), mt)
		src.buf = make([]byte, 16)
		m := &machine{src: src, meter: mt}
		v, err := m.load()
		if err != nil {
			t.Fatal(err)
		}
		if got := format(v); got != pythonObject {
			t.Errorf("got %s", got)
		}
		if src.pos != int64(len(p)) || mt.fed != int64(len(p)) {
			t.Errorf("at %d, fed %d of %d", src.pos, mt.fed, len(p))
		}
	}
}
