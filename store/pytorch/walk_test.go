package pytorch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"nibble/internal/rule"
)

// names lists the tensors of an archive whose pickle w is.
func names(t *testing.T, w *writer) (tensors, opaque string) {
	t.Helper()
	b := zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", float32s(1, 2, 3))
	f, err := readBounded(t, b)
	if err != nil {
		t.Fatal(err)
	}
	var ts, os []string
	for _, t := range f.Tensors {
		ts = append(ts, t.Name)
	}
	for _, o := range f.Opaque {
		os = append(os, o.Name+":"+o.Class)
	}
	return strings.Join(ts, " "), strings.Join(os, " ")
}

func TestNames(t *testing.T) {
	one := func(key func(w *writer)) *writer {
		w := new(writer)
		w.op('}')
		key(w)
		return w.tensor("0", 1).op('s', '.')
	}
	foo := "c__main__\nFoo\n)R"
	for _, c := range []struct {
		name            string
		w               *writer
		tensors, opaque string
	}{
		{"bare tensor", new(writer).tensor("0", 1).op('.'), "tensor", ""},
		{"list", new(writer).op(']').tensor("0", 1).op('a').tensor("0", 1).op('a', '.'), "0 1", ""},
		{"int key", one(func(w *writer) { w.op(7) }), "7", ""},
		{"big int key", one(func(w *writer) { w.op("L100000000000000000000L\n") }), "100000000000000000000", ""},
		{"bool key", one(func(w *writer) { w.op(byte(0x88)) }), "True", ""},
		{"None key", one(func(w *writer) { w.op('N') }), "None", ""},
		{"float key", one(func(w *writer) { w.op("F1e5\n") }), "100000.0", ""},
		{"small float key", one(func(w *writer) { w.op("F1e-7\n") }), "1e-07", ""},
		{"bytes key", one(func(w *writer) { w.op("C\x03a'\xff") }), `b"a'\xff"`, ""},
		{"tuple key", one(func(w *writer) { w.str("a").op(1, byte(0x86)) }), "('a', 1)", ""},
		{"tuple of one", one(func(w *writer) { w.op(1, byte(0x85)) }), "(1,)", ""},
		{"dtype key", one(func(w *writer) { w.op("ctorch\nfloat32\n") }), "torch.float32", ""},
		{"string with dots", one(func(w *writer) { w.str("a.b") }), "a.b", ""},
		{
			"keys of surrogates", new(writer).op('}', '(').
				str("\xed\xa0\xbd").tensor("0", 1).
				op("\x8c\x03\xed\xa0\xbe").tensor("0", 1).
				op("\x8d\x07\x00\x00\x00\x00\x00\x00\x00a\xed\xb9\x82\xed\xa0\xbd").tensor("0", 1).
				op("V\\udbff\n").tensor("0", 1).
				op("U\x03\xed\xb9\x83").tensor("0", 1).
				op('u', '.'),
			`\ud83d \ud83e a\ude42\ud83d \udbff \ude43`, "",
		},
		{
			"keys of pairs of surrogates", new(writer).op('}', '(').
				str("\xed\xa0\xbd\xed\xb9\x82").tensor("0", 1).
				op("\x8c\x06\xed\xa0\xbd\xed\xb9\x83").tensor("0", 1).
				op("V\\ud83d\\ude44\n").tensor("0", 1).
				op("U\x06\xed\xa0\xbd\xed\xb9\x85").tensor("0", 1).
				op("S'\\xed\\xa0\\xbd\\xed\\xb9\\x86'\n").tensor("0", 1).
				op('u', '.'),
			"\U0001F642 \U0001F643 \U0001F644 \U0001F645 \U0001F646", "",
		},
		{
			"keys that read like those of surrogates", new(writer).op('}', '(').
				str("\xed\xa0\xbd").tensor("0", 1).
				str(`\ud83d`).tensor("0", 1).
				str("\xed\xa0\xbd\xed\xb9\x82").tensor("0", 1).
				str("\U0001F642").tensor("0", 1).
				op('u', '.'),
			`\ud83d \ud83d#2 ` + "\U0001F642 \U0001F642#2", "",
		},
		{"class named with a surrogate", new(writer).op('(', "\x8c\x01m\x8c\x03\xed\xa0\xbd\x93").tensor("0", 1).op('t', '.'), "1", `0:m.\ud83d`},
		{"empty string", one(func(w *writer) { w.str("") }), "", ""},
		{
			"collisions", new(writer).op('}', '(').
				str("a.b").tensor("0", 1).
				str("a").op('}').str("b").tensor("0", 1).op('s').
				str("a.b#2").tensor("0", 1).
				str("c").op('}', '(').op(1).tensor("0", 1).str("1").tensor("0", 1).op('u', 'u', '.'),
			"a.b a.b#2 a.b#2#2 c.1 c.1#2", "",
		},
		{
			"a collision with a name that has a number",
			new(writer).op('}', '(').str("a.b#2").tensor("0", 1).str("a.b").tensor("0", 1).str("a").op('}').str("b").tensor("0", 1).op('s', 'u', '.'),
			"a.b#2 a.b a.b#3", "",
		},
		{
			"a cycle met from two sides",
			new(writer).op('(', '}', "q\x00", '(').str("b").op(']', "q\x01", "h\x00", 'a').str("t").tensor("0", 1).op('u', "h\x01", 't', '.'),
			"0.t 1.0.t", "",
		},
		{
			"a key set twice counts once",
			new(writer).op('}', '(').str("a").tensor("0", 1).str("b").tensor("0", 1).str("a").op('N').op(1).tensor("0", 1).op(1, 'N', 'u', '.'),
			"b", "",
		},
		{
			"a shared dict is listed on each path",
			new(writer).op('}', "q\x01", '(').str("x").op('}').op("q\x02").str("w").tensor("0", 1).op('s').str("y").op("h\x02").str("z").op("h\x01", 'u', '.'),
			"x.w y.w", "",
		},
		{
			"optimizer level", new(writer).op('}').str("state").op('}').op(0).op('}').str(optimizerLevel).
				op('}').str("state1").tensor("0", 1).op('s', 's', 's', 's', '.'),
			"state.0.state1", "",
		},
		{
			"unknown classes", new(writer).op('}', '(').str("args").op(foo).str("w").tensor("0", 1).str("cls").op("c__main__\nBar\n").
				str("layout").op("ctorch\nstrided\n").op('u', '.'),
			"w", "args:__main__.Foo cls:__main__.Bar",
		},
		{
			"unknown names of torch and numpy", new(writer).op('}', '(').str("load").op("ctorch\nload\n").str("foo").op("ctorch\nfoo\n)R").
				str("np").op("cnumpy\nload\n").str("ma").op("cnumpy.ma\nX\n)R").str("ctor").op("cnumpy.core.multiarray\nfoo\n").
				str("dtypes").op("cnumpy.dtypes\nload\n").
				str("w").tensor("0", 1).op('u', '.'),
			"w", "load:torch.load foo:torch.foo np:numpy.load ma:numpy.ma.X ctor:numpy.core.multiarray.foo dtypes:numpy.dtypes.load",
		},
		{
			"constants and types of torch and numpy", new(writer).op('(').
				op("ctorch\nfloat32\n", "ctorch\nquint8\n", "ctorch\nuint4\n", "ctorch\nchannels_last\n", "ctorch\nper_tensor_affine\n").
				op("ctorch\ndtype\n", "ctorch\nTensor\n", "ctorch\nFloatTensor\n", "ctorch\nSize\n", "ctorch\nFloatStorage\n").
				op("ctorch\ndevice\n", "ctorch\ndevice\n(").str("cpu").op("tR").op("ctorch.serialization\n_get_layout\n(").str("torch.strided").op("tR").
				op("cnumpy\nfloat32\n", "cnumpy\nndarray\n", "cnumpy\ndtype\n", "cnumpy.dtypes\nFloat32DType\n)R", "cnumpy\nfloat64\n(G", "\x3f\xf0\x00\x00\x00\x00\x00\x00tR").
				op("cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01(K\x01tNNNtb").
				tensor("0", 1).op('t', '.'),
			"19", "",
		},
		{
			"what an unknown class holds is not listed",
			new(writer).op('}', '(').str("o").op(foo, '}').str("t").tensor("0", 1).op('s', 'b').str("w").tensor("0", 1).op('u', '.'),
			"w", "o:__main__.Foo",
		},
		{
			"parameter of torch before 1.0",
			new(writer).op('}').str("w").op("ctorch.nn.parameter\nParameter\n(").tensor("0", 1).op(byte(0x89), "tR", 's', '.'),
			"w", "",
		},
		{
			"numpy is skipped", new(writer).op('}', '(').str("n").op("cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(", "U\x02f8", "tR", "U\x01xtR").
				str("w").tensor("0", 1).op('u', '.'),
			"w", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tensors, opaque := names(t, c.w)
			if tensors != c.tensors || opaque != c.opaque {
				t.Errorf("tensors %q, want %q; opaque %q, want %q", tensors, c.tensors, opaque, c.opaque)
			}
		})
	}
}

// TestStorageOfAnotherModule protects against a class that only has the name of
// one of torch's storages.
func TestStorageOfAnotherModule(t *testing.T) {
	w := new(writer)
	w.op('}').str("w").op("ctorch._utils\n_rebuild_tensor\n(").storage("m\nFloatStorage", "0", 1)
	w.op(0, 1, byte(0x85), 1, byte(0x85), "tR", 's', '.')
	f, err := readBytes(zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", float32s(1)))
	testHostile(t, f, err, "w PT-004 m.FloatStorage")
}

func TestRootClass(t *testing.T) {
	for root, want := range map[string]string{
		"c__main__\nNet\n)R.":                    "file PT-004 __main__.Net",
		"c__main__\nNet\n.":                      "file PT-004 __main__.Net",
		"cbitsandbytes.nn\nLinear4bit\n)\x81}b.": "file PT-004 bitsandbytes.nn.Linear4bit",
		"(c__main__\nNet\n)Rl.":                  "ok",
		"N.":                                     "ok",
	} {
		f, err := readBounded(t, zipFileOf(t, "a/data.pkl", root))
		testHostile(t, f, err, want)
	}
}

// TestTorchScript walks the attributes of a scripted module, which in any
// other file would be of an unknown class.
func TestTorchScript(t *testing.T) {
	w := new(writer)
	w.op("c__torch__.m\nNet\n)\x81}", '(')
	w.str("weight").tensor("0", 3)
	w.str("sub").op("c__torch__.m\nSub\n)\x81}", '(').str("bias").tensor("0", 2)
	w.str("list").op("ctorch.jit._pickle\nbuild_tensorlist\n(", ']').tensor("0", 1).op('a', "tR", 'u', 'b', 'u', 'b', '.')
	c := new(writer)
	c.op('(').tensor("0", 2).op('t', '.')
	file := zipFileOf(t, "m/data.pkl", w.String(), "m/data/0", float32s(1, 2, 3), "m/code/m.py", "", "m/constants.pkl", c.String(), "m/constants/0", float32s(4, 5))
	f, err := readBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, int64(len(file)))
	if f.Kind != TorchScript {
		t.Errorf("kind %q", f.Kind)
	}
	const want = "weight=f32[1 2 3] sub.bias=f32[1 2] sub.list.0=f32[1] constants.0=f32[4 5]"
	if got := show(t, f, file); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestSilero reads a real TorchScript archive. Its safetensors twin is of
// another training, but the Fourier basis is a constant.
func TestSilero(t *testing.T) {
	dir := wildDir(t)
	f, file := mustRead(t, dir+"/snakers4__silero-vad__silero_vad.jit")
	if f.Kind != TorchScript || len(f.Tensors) != 33 || f.Tensors[32].Name != "constants.0" {
		t.Errorf("%s with %d tensors", f.Kind, len(f.Tensors))
	}
	basis := sum(gather(t, f, file, find(t, f, "_model.stft.forward_basis_buffer")))
	if !slices.Contains(safetensorsSums(t, dir+"/snakers4__silero-vad__silero_vad_16k.safetensors"), basis) {
		t.Error("the Fourier basis is not that of the twin")
	}
}

// TestBombs reads small files that unfold without end. Each must be refused, or
// be read, at a cost that its size explains.
func TestBombs(t *testing.T) {
	limit := "file PT-006 limit"
	tensorTwice := func(n int) *writer { // n levels of (x, x) over a tensor
		w := new(writer)
		w.tensor("0", 1)
		for range n {
			w.op('2', byte(0x86))
		}
		return w.op('.')
	}
	for _, c := range []struct {
		name string
		w    *writer
		want string
	}{
		{"doubling tuples over a tensor", tensorTwice(60), limit},
		{"doubling tuples over nothing", new(writer).op('N', strings.Repeat("2\x86", 60), '.'), "ok"},
		{"a tensor under a thousand lists", new(writer).op(strings.Repeat("](", 999)).tensor("0", 1).op(strings.Repeat("e", 999), '.'), "ok"},
		{"one list too many", new(writer).op(strings.Repeat("](", 1001)).tensor("0", 1).op(strings.Repeat("e", 1001), '.'), "file PT-006 1000 deep"},
		{"a list replayed", new(writer).op('(', ']', "q\x00", '(', strings.Repeat("N", 1000), 'e', strings.Repeat("h\x00", 30000), 'l', '.'), "ok"},
		{"a list of tensors replayed", replay(300, 60000), limit},
		{"long names over many tensors", longNames(), limit},
		{"a dict copied", new(writer).op("(}(", strings.Repeat("K\x01N", 2000), "uq\x00", strings.Repeat("0cbuiltins\ndict\n(h\x00tR", 6000), "l."), limit},
		{"pairs made a dict again", new(writer).op("((", strings.Repeat("K\x01N\x86", 2000), "lq\x00", strings.Repeat("0ccollections\nOrderedDict\n(h\x00tR", 6000), "l."), limit},
		{"a list copied", new(writer).op("(](", strings.Repeat("N", 5000), "eq\x00", strings.Repeat("0cbuiltins\nset\n(h\x00tR", 9000), "l."), limit},
		{"bytes encoded again", new(writer).op("(").str(strings.Repeat("x", 60000)).op("q\x00", strings.Repeat("c_codecs\nencode\n(h\x00tR", 9000), "l."), limit},
		{"a shape used again", new(writer).op("((", strings.Repeat("K\x01", 64), "tq\x00", strings.Repeat("ctorch._utils\n_rebuild_tensor\n(NK\x00h\x00h\x00tR", 9000), "l."), "ok"},
		{"nested persistent ids", new(writer).op(strings.Repeat("(", 1000), 'N', strings.Repeat("tQ", 1000), '.'), "file PT-002 persistent id"},
		{"a persistent id of a persistent id", new(writer).storage("FloatStorage", "0", 1).op('Q', '.'), "file PT-002 persistent id of a storage"},
		{"marks", new(writer).op(strings.Repeat("(", 1<<20), 'N', '.'), "ok"},
		{"a million booleans", new(writer).op(']', strings.Repeat("("+strings.Repeat("\x88", 1000)+"e", 1000), '.'), "ok"},
		{"nulls", new(writer).op('(', strings.Repeat("N", 1<<20), 'l', '.'), "ok"},
		{"empty lists", new(writer).op('(', strings.Repeat("]", 1<<20), 'l', '.'), limit},
		{"empty dicts", new(writer).op('(', strings.Repeat("}", 1<<20), 'l', '.'), limit},
		{"sparse memo", sparseMemo(), "ok"},
		{"bad storages with a long key", badStorages(), limit},
		{"a class called through itself", new(writer).op("ccopyreg\n__newobj__\nq\x00(", strings.Repeat("h\x00", 1<<18), "tR."), "file PT-002 __newobj__ of copyreg"},
		{"two states for every tensor", twoStates(1 << 14), "ok"},
		{"a name too long", new(writer).op('}').str(strings.Repeat("k", 60000)).op('}').str(strings.Repeat("k", 60000)).tensor("0", 1).op("ss."), "file PT-006 name of more"},
		{"the data of a sparse tensor again", new(writer).op("(", strings.Repeat("K\x01", 65), "tq\x00((", strings.Repeat("h\x00", 30000), "tq\x01ctorch._utils\n_rebuild_sparse_tensor\nq\x02(", strings.Repeat("h\x02(Nh\x01tR", 500), "l."), limit},
		{"broken tensors", new(writer).op("ctorch._utils\n_rebuild_tensor\nq\x000(", strings.Repeat("h\x00)R", 1<<18), "l."), limit},
		{"types that call each other", typesOfTypes(1 << 16), "ok"},
		{"opaque objects", new(writer).op("c__main__\nFoo\nq\x000(", strings.Repeat("h\x00)R", 1<<18), "l."), limit},
		{"refused tensors", new(writer).op("ctorch._utils\n_rebuild_nested_tensor\nq\x000(", strings.Repeat("h\x00)R", 1<<18), "l."), limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, zipFileOf(t, "a/data.pkl", c.w.String(), "a/data/0", float32s(1)))
			testHostile(t, f, err, c.want)
			f, err = readBounded(t, zipFileOf(t, "a/data.pkl*", c.w.String(), "a/data/0", float32s(1)))
			if f == nil && err == nil {
				t.Error("neither a file nor an error")
			}
		})
	}
}

// TestMemoryLimit reads a file under every limit: it must be read in full or
// not at all.
func TestMemoryLimit(t *testing.T) {
	w := new(writer)
	w.op('}', '(')
	for i := range 1000 {
		w.op(i, 'N')
	}
	file := zipFileOf(t, "a/data.pkl", w.str("w").tensor("0", 1).op('u', '.').String(), "a/data/0", float32s(1))
	refused, read := 0, 0
	for limit := int64(1); limit < 300_000; limit += 1000 {
		f, err := Read(bytes.NewReader(file), int64(len(file)), Limits{Memory: limit})
		switch {
		case err == nil && len(f.Tensors) == 1:
			read++
		case errors.Is(err, rule.ErrLimit):
			refused++
		default:
			t.Fatalf("limit %d: %+v, error %v", limit, f, err)
		}
	}
	if refused == 0 || read == 0 {
		t.Errorf("%d times refused, %d times read", refused, read)
	}
}

// TestDeflatedNothing inflates a pickle that does nothing for 32 MiB.
func TestDeflatedNothing(t *testing.T) {
	f, err := readBounded(t, zipFileOf(t, "a/data.pkl*", "N"+strings.Repeat("\x98", 32<<20)+"."))
	testHostile(t, f, err, "file PT-006 limit")
}

// replay is a list of n tensors that occurs m times.
func replay(n, m int) *writer {
	w := new(writer)
	w.op('(', ']', "q\x00", '(').tensor("0", 1).op("q\x01", strings.Repeat("h\x01", n-1), 'e')
	return w.op(strings.Repeat("h\x00", m), 'l', '.')
}

// longNames is a chain of dicts with long keys, a tensor at every level.
func longNames() *writer {
	w := new(writer)
	w.op('(').tensor("0", 1).op("q\x000").str(strings.Repeat("k", 2000)).op("q\x010", 'N', "q\x020")
	for range 900 { // {0: tensor, key: the level before}
		w.op("}(K\x00h\x00h\x01h\x02uq\x020")
	}
	return w.op("h\x02.")
}

// badStorages refers to one storage of negative size and a key of 60,000 bytes
// time and again.
func badStorages() *writer {
	w := new(writer)
	w.op('(', '(').str("storage").op("ctorch\nFloatStorage\n").str(strings.Repeat("k", 60000)).str("cpu").op(-1, 't', "q\x00", 'Q')
	return w.op(strings.Repeat("h\x00Q", 1<<17), 'l', '.')
}

// twoStates is a dict of n codes, each with two quant states.
func twoStates(n int) *writer {
	w := new(writer)
	w.op('}', '(').str("x").quantState().op("q\x00").str("y").tensor("0", 1).op("q\x01")
	for i := range n {
		name := fmt.Sprint(i)
		w.str(name).op("h\x01").str(name + ".quant_state").op("h\x00").str(name + ".blocksize").op(64)
	}
	return w.op('u', '.')
}

// typesOfTypes calls _rebuild_from_type through __newobj__ through itself, n
// times.
func typesOfTypes(n int) *writer {
	w := new(writer)
	w.op("ctorch._tensor\n_rebuild_from_type_v2\nq\x000ccopyreg\n__newobj__\nq\x010)")
	// the arguments x of the inner call become (type, newobj, None, x, None)
	w.op("q\x02", strings.Repeat("0(h\x00h\x01Nh\x02Ntq\x02", n))
	return w.op("0h\x01h\x02R.")
}

// sparseMemo puts one value under 65536 numbers far from each other.
func sparseMemo() *writer {
	w := new(writer)
	w.op('N')
	for i := range 1 << 16 {
		w.Write([]byte{'r', byte(i), byte(i >> 8), 1, 16})
	}
	return w.op('.')
}

// safetensorsSums returns the sha256 of each tensor in a safetensors file.
func safetensorsSums(t *testing.T, path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := le.Uint64(b)
	var header map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	var sums []string
	for _, e := range header {
		sums = append(sums, sum(b[8+n:][e.Offsets[0]:e.Offsets[1]]))
	}
	return sums
}
