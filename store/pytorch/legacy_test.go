package pytorch

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const legacyHead = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + "\x80\x02M\xe9\x03." + "\x80\x02}."

// legacyFile is a legacy file of an object, storage keys, and each storage's
// count and data.
func legacyFile(object, keys *writer, storages ...string) []byte {
	return []byte(legacyHead + object.String() + keys.String() + strings.Join(storages, ""))
}

func counted(n uint64, data string) string {
	return string(binary.LittleEndian.AppendUint64(nil, n)) + data
}

func keyList(keys ...string) *writer {
	w := new(writer)
	w.op(']')
	for _, k := range keys {
		w.str(k).op('a')
	}
	return w.op('.')
}

// viewStorage pushes a storage of 6 floats seen from element start, n long.
func (w *writer) viewStorage(start, n int) *writer {
	w.op('(').str("storage").op("ctorch\nFloatStorage\n").str("root").str("cpu").op(6)
	return w.op('(').str("view").op(start, n, 't', 't', 'Q')
}

func TestLegacy(t *testing.T) {
	six := counted(6, float32s(0, 1, 2, 3, 4, 5))
	view := func(start, n, offset, size int) *writer {
		w := new(writer)
		w.op('}').str("w").op("ctorch._utils\n_rebuild_tensor\n(").viewStorage(start, n)
		return w.op(offset, size, byte(0x85), 1, byte(0x85), "tR", 's', '.')
	}
	beside := func(start string) *writer { // a view of two elements, and a sound tensor
		w := new(writer)
		w.op('}', '(').str("w").op("ctorch._utils\n_rebuild_tensor\n((").str("storage").op("ctorch\nFloatStorage\n").str("root").str("cpu").op(6)
		w.op('(').str("view").op(start, 2, 't', 't', 'Q').op(0, 1, byte(0x85), 1, byte(0x85), "tR")
		return w.str("v").tensor("k", 2).op('u', '.')
	}
	one := func() *writer { return new(writer).op('}').str("w").tensor("k", 2).op('s', '.') }
	misaligned := new(writer) // four bytes into the storage, elements of eight
	misaligned.op('}').str("w").op("ctorch._utils\n_rebuild_tensor_v3\n(").viewStorage(1, 4)
	misaligned.op(0, 1, byte(0x85), 1, byte(0x85), 'N', 'N', "ctorch\nint64\n", "tR", 's', '.')
	two := counted(2, float32s(1, 2))
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"storage view", legacyFile(view(2, 3, 1, 2), keyList("root"), six), "w=f32[3 4]"},
		{"storage view left", legacyFile(view(2, 3, 1, 3), keyList("root"), six), "w PT-005 element 3"},
		{"storage view too long", legacyFile(view(2, 5, 0, 1), keyList("root"), six), "w PT-005 leaves storage"},
		{"storage view of negative length", legacyFile(view(2, -1, 0, 0), keyList("root"), six), "w PT-005 leaves storage"},
		{"storage view of a long", legacyFile(beside(long70), keyList("root", "k"), six, two), "w!PT-005 v=f32[1 2]"},
		{"storage view of a string", legacyFile(beside("U\x011"), keyList("root", "k"), six, two), "w!PT-002 v=f32[1 2]"},
		{"storage view of no integers", legacyFile(beside(")"), keyList("root", "k"), six, two), "w!PT-002 v=f32[1 2]"},
		{"storage view left, another tensor", legacyFile(beside("K\x05"), keyList("root", "k"), six, two), "w!PT-005 v=f32[1 2]"},
		{"storage of a long", legacyFile(new(writer).op('}').str("w").op('(').str("storage").op("ctorch\nFloatStorage\n").str("k").str("cpu").op(long70, "tQs."), keyList("k"), two), "file PT-005 71 bits"},
		{"storage view between elements", legacyFile(misaligned, keyList("root"), six), "w PT-005 storage view at element 1"},
		{"negative storage view", legacyFile(view(-1, 2, 0, 1), keyList("root"), six), "w PT-005 leaves storage"},
		{"trailing bytes", append(legacyFile(one(), keyList("k"), two), "xyz"...), "w=f32[1 2]"},
		{"key of another file", legacyFile(one(), keyList("x"), two), "file PT-005 that no tensor has"},
		{"key twice", legacyFile(one(), keyList("k", "k"), two, two), "file PT-005 twice"},
		{"key missing", legacyFile(one(), keyList(), two), "file PT-005 missing"},
		{"keys of no list", legacyFile(one(), new(writer).op('N', '.'), two), "file PT-002 not a list"},
		{"no data", legacyFile(one(), keyList("k")), "file PT-001 truncated"},
		{"no keys", legacyFile(one(), new(writer)), "file PT-002 truncated"},
		{"count", legacyFile(one(), keyList("k"), counted(3, float32s(1, 2))), "file PT-005 of 3 elements"},
		{"unknown class", legacyFile(new(writer).op('}').str("w").storage("FooStorage", "k", 2).op('s', '.'), keyList("k"), two), "file PT-004 torch.FooStorage"},
		{"two sizes", legacyFile(new(writer).op('(').tensor("k", 2).tensor("k", 1).op('t', '.'), keyList("k"), two), "file PT-005 two sizes"},
		{"two types", legacyFile(new(writer).op('(').storage("FloatStorage", "k", 2).storage("IntStorage", "k", 2).op('t', '.'), keyList("k"), two), "file PT-005 two sizes"},
		{"protocol", []byte(strings.Replace(legacyHead, "\xe9\x03", "\xea\x03", 1)), "file PT-001 protocol"},
		{"persistent id in the keys", legacyFile(one(), new(writer).storage("FloatStorage", "k", 2).op('.'), two), "file PT-002 no storages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, c.file)
			if strings.Contains(c.want, "=") {
				if err != nil {
					t.Fatal(err)
				}
				if got := show(t, f, c.file); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				return
			}
			testHostile(t, f, err, c.want)
		})
	}
}

// TestLegacyTruncated cuts a real legacy file at every length: each cut must be
// an error, for the last storage of it is viewed to its end.
func TestLegacyTruncated(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(goldenDir, "pt/dtypes_legacy.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := readBytes(b[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes: no error", n, len(b))
		}
	}
}

// tarOf makes a tar of names and contents, alternating. A name that ends in @
// is a symbolic link.
func tarOf(t *testing.T, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		name, link := strings.CutSuffix(parts[i], "@")
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(parts[i+1])), Format: tar.FormatUSTAR}
		if link {
			h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/passwd"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(parts[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTar(t *testing.T) {
	i64 := func(vals ...int64) string {
		var b []byte
		for _, v := range vals {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		return string(b)
	}
	const head = "K\x01." + "(K\x05U\x03cpuctorch\nFloatStorage\nt."
	storages := func(views string) string { return head + counted(4, float32s(1, 2, 3, 4)) + views }
	tensors := func(storage, shape, stride, offset int64) string {
		return "K\x01.(K\x07K" + string(rune(storage)) + "ctorch\nFloatTensor\nt." + i64(1, shape, stride, offset)
	}
	const object = "}U\x01wU\x017Qs."
	const pickle, tens, stor = "pickle", "tensors", "storages"
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"plain", tarOf(t, "sys_info", "N.", pickle, object, tens, tensors(5, 2, 2, 1), stor, storages("].")), "w=f32[2 4]"},
		{"view", tarOf(t, pickle, object, tens, tensors(6, 2, 1, 0), stor, storages("](K\x06K\x05K\x01K\x02ta.")), "w=f32[2 3]"},
		{"a storage in the object", tarOf(t, pickle, "}U\x01wctorch._utils\n_rebuild_tensor\n(U\x015QK\x00(K\x02t(K\x01ttRs.", tens, "K\x00.", stor, storages("].")), "w=f32[1 2]"},
		{"beyond the storage", tarOf(t, pickle, object, tens, tensors(5, 4, 1, 1), stor, storages("].")), "w PT-005 element 4"},
		{"beyond the view", tarOf(t, pickle, object, tens, tensors(6, 3, 1, 0), stor, storages("](K\x06K\x05K\x01K\x02ta.")), "w PT-005 element 2"},
		{"view beyond the storage", tarOf(t, pickle, object, tens, tensors(6, 2, 1, 0), stor, storages("](K\x06K\x05K\x03K\x02ta.")), "w PT-005 leaves"},
		{"view before the storage", tarOf(t, pickle, object, tens, tensors(6, 2, 1, 0), stor, storages("](K\x06K\x05J\xff\xff\xff\xffK\x02ta.")), "w PT-005 leaves"},
		{"storage twice", tarOf(t, pickle, object, tens, tensors(5, 2, 1, 0), stor, "K\x02."+strings.Repeat(strings.TrimPrefix(storages(""), "K\x01."), 2)+"]."), "file PT-002 twice"},
		{"view of nothing", tarOf(t, pickle, object, tens, tensors(6, 2, 1, 0), stor, storages("](K\x06K\x09K\x03K\x02ta.")), "file PT-002 there is not"},
		{"no such tensor", tarOf(t, pickle, "}U\x01wU\x018Qs.", tens, tensors(5, 2, 2, 1), stor, storages("].")), `file PT-002 no tensor "8"`},
		{"no such storage", tarOf(t, pickle, object, tens, tensors(9, 2, 2, 1), stor, storages("].")), "file PT-002 there is not"},
		{"count", tarOf(t, pickle, object, tens, tensors(5, 2, 2, 1), stor, strings.Replace(storages("]."), "K\x01.", "J\xff\xff\xff\x7f.", 1)), "file PT-002 count"},
		{"storage cut", tarOf(t, pickle, object, tens, tensors(5, 2, 2, 1), stor, head+counted(40, float32s(1))), "file PT-001 truncated"},
		{"storage overflow", tarOf(t, pickle, object, tens, tensors(5, 2, 2, 1), stor, head+counted(1<<62, float32s(1))), "file PT-005 elements"},
		{"no views", tarOf(t, pickle, object, tens, tensors(5, 2, 2, 1), stor, storages("")), "file PT-002 truncated"},
		{"rank", tarOf(t, pickle, object, tens, "K\x01.(K\x07K\x05ctorch\nFloatTensor\nt."+i64(1<<30), stor, storages("].")), "file PT-006 dimensions"},
		{"member missing", tarOf(t, pickle, object, stor, storages("].")), `file PT-001 "tensors"`},
		{"member twice", tarOf(t, pickle, object, pickle, object), "file PT-001 duplicate"},
		{"member cut", tarOf(t, pickle, strings.Repeat("x", 5000))[:2000], "file PT-001 truncated"},
		{"member that is a link", tarOf(t, pickle, object, tens+"@", "", stor, storages("].")), `file PT-001 "tensors"`},
		{"unsafe", tarOf(t, pickle, "cos\nsystem\n.", tens, tensors(5, 2, 2, 1), stor, storages("].")), "file PT-003 os.system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, c.file)
			if strings.Contains(c.want, "=") {
				if err != nil {
					t.Fatal(err)
				}
				if got := show(t, f, c.file); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				return
			}
			testHostile(t, f, err, c.want)
		})
	}
}
