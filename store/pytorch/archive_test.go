package pytorch

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"nibble/internal/rule"
)

// zipFileOf makes an archive of names and contents, alternating. A name that
// ends in * is deflated.
func zipFileOf(t testing.TB, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		name, deflate := strings.CutSuffix(parts[i], "*")
		h := &zip.FileHeader{Name: name, Method: zip.Store}
		if deflate {
			h.Method = zip.Deflate
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, parts[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// onePickle is a dict of one tensor w of n floats in storage 0.
func onePickle(n int) string {
	w := new(writer)
	return w.op('}').str("w").tensor("0", n).op('s', '.').String()
}

func float32s(vals ...float32) string {
	var b []byte
	for _, v := range vals {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return string(b)
}

func TestZip(t *testing.T) {
	data := float32s(1, 2, 3)
	big := "\x3f\x80\x00\x00\x40\x00\x00\x00\x40\x40\x00\x00"
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"plain", zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0", data)},
		{"deflated", zipFileOf(t, "a/data.pkl*", onePickle(3), "a/data/0*", data)},
		{"little", zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0", data, "a/byteorder", "little")},
		{"big-endian", zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0", big, "a/byteorder", "big")},
		{"big-endian deflated", zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0*", big, "a/byteorder*", "big")},
		{"deep root", zipFileOf(t, "a/b/data.pkl", onePickle(3), "a/b/data/0", data)},
		{"second pickle, first with version", zipFileOf(t, "x/data.pkl", "N.", "a/data.pkl", onePickle(3), "a/version", "3", "a/data/0", data)},
		{"second pickle, root of the first entry", zipFileOf(t, "a/data/0", data, "x/data.pkl", "N.", "a/data.pkl", onePickle(3))},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBytes(c.file)
			if err != nil {
				t.Fatal(err)
			}
			check(t, f, int64(len(c.file)))
			if got := show(t, f, c.file); got != "w=f32[1 2 3]" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// patch returns b with the bytes of v, little-endian, written over those at
// off behind the last occurrence of sig.
func patch(b []byte, sig string, off int, v uint64, size int) []byte {
	b = bytes.Clone(b)
	at := bytes.LastIndex(b, []byte(sig)) + off
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], v)
	copy(b[at:at+size], w[:])
	return b
}

func TestZipRefused(t *testing.T) {
	good := zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0", float32s(1, 2, 3))
	deflated := zipFileOf(t, "a/data.pkl*", onePickle(3), "a/data/0*", strings.Repeat(float32s(1), 300))
	const end, central, local = "PK\x05\x06", "PK\x01\x02", "PK\x03\x04"
	comment := patch(good, end, 20, uint64(len(good)), 2)
	comment = append(comment, good...)
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"a comment that is an archive", comment, "file PT-001 two end records"},
		{"more entries than there is room for", patch(good, end, 10, 9999, 2), "file PT-001 end record"},
		{"fewer entries than there are", patch(good, end, 10, 1, 2), "file PT-001 more bytes"},
		{"directory beyond the end", patch(good, end, 16, 1<<31, 4), "file PT-001 end record"},
		{"directory size", patch(good, end, 12, 1<<31, 4), "file PT-001 end record"},
		{"zip64 sizes without an extra", patch(good, central, 24, absent32, 4), "w PT-001 zip64"},
		{"name longer than the directory", patch(good, central, 28, 60000, 2), "file PT-001 directory truncated"},
		{"entry without its signature", patch(good, central, 0, 0, 1), "file PT-001 signature"},
		{"encrypted", patch(good, central, 8, 1, 2), "w PT-001 encrypted"},
		{"method", patch(good, central, 10, 12, 2), "w PT-001 method 12"},
		{"local method", patch(good, local, 8, 8, 2), "w PT-001 contradicts"},
		{"local name length", patch(good, local, 26, 7, 2), "w PT-001 contradicts"},
		{"local extra length", patch(good, local, 28, 60000, 2), "w PT-001 no local header"},
		{"local signature", patch(good, local, 0, 0, 4), "w PT-001 no local header"},
		{"storage longer than the archive", patch(patch(good, central, 24, 1<<20, 4), central, 20, 1<<20, 4), "w PT-001 truncated"},
		{"impossible ratio", patch(deflated, central, 24, 1<<30, 4), "w PT-001 cannot inflate"},
		{"byte order", zipFileOf(t, "a/data.pkl", "N.", "a/byteorder", "middle"), "file PT-001 middle"},
		{"long byte order", zipFileOf(t, "a/data.pkl", "N.", "a/byteorder", "littlelittle"), "file PT-001 12 bytes"},
		{"two pickles", zipFileOf(t, "x", "", "a/data.pkl", "N.", "b/data.pkl", "N."), "file PT-001 2 entries"},
		{"name like data.pkl", zipFileOf(t, "a/metadata.pkl", "N."), "file PT-001 without data.pkl"},
		{"no archive at all", []byte("PK\x03\x04"), "file PT-001 truncated"},
		{"empty archive behind a prefix", append([]byte("xx"), zipFileOf(t)...), "file PT-001 without data.pkl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, c.file)
			testHostile(t, f, err, c.want)
		})
	}
}

func TestRecords(t *testing.T) {
	file := zipFileOf(t, "a/data.pkl", onePickle(3), "a/data/0", float32s(1, 2, 3))
	for limit, refused := range map[int64]bool{1: true, 2: false} {
		_, err := Read(bytes.NewReader(file), int64(len(file)), Limits{Records: limit})
		if errors.Is(err, rule.ErrLimit) != refused {
			t.Errorf("limit of %d records: %v", limit, err)
		}
	}
}

// TestDeflatedPickle protects against a pickle whose compressed form lies.
func TestDeflatedPickle(t *testing.T) {
	// Longer than the window, and with ten bytes behind its end.
	pickle := "(" + strings.Repeat("N", 50_000) + "l" + onePickle(3) + strings.Repeat(" ", 10)
	good := zipFileOf(t, "a/data.pkl*", pickle, "a/data/0", float32s(1, 2, 3))
	const central = "PK\x01\x02"
	first := bytes.Index(good, []byte(central))
	edit := func(off int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[first+off:], v)
		return b
	}
	size := binary.LittleEndian.Uint32(good[first+24:])
	broken := bytes.Clone(good)
	broken[lenLocal+len("a/data.pkl")] |= 6 // a type of block that deflate does not have
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"wrong CRC", edit(16, 1), "file PT-001 CRC"},
		{"broken data", broken, "file PT-001 deflated zip entry"},
		{"too small", edit(24, size-10), "file PT-001 larger"},
		{"too large", edit(24, size+10), "file PT-002 truncated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, c.file)
			testHostile(t, f, err, c.want)
		})
	}
	_, err := Read(bytes.NewReader(good), int64(len(good)), Limits{PickleBytes: 100})
	if !errors.Is(err, rule.ErrLimit) {
		t.Errorf("pickle above the limit: %v", err)
	}
}

func TestInflate(t *testing.T) {
	data := strings.Repeat(float32s(1, 2, 3, 4), 1000)
	file := zipFileOf(t, "a/data.pkl", onePickle(4000), "a/data/0*", data)
	f, err := readBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	s := f.Storages[0]
	if !s.Deflated || s.CRC32 != crc32.ChecksumIEEE([]byte(data)) || s.Bytes != int64(len(data)) {
		t.Fatalf("%+v", s)
	}
	dst := make([]byte, s.Bytes)
	if err := s.Inflate(bytes.NewReader(file), dst); err != nil || string(dst) != data {
		t.Fatalf("error %v", err)
	}
	z := s.Open(bytes.NewReader(file))
	defer z.Close()
	if got, err := io.ReadAll(iotest.OneByteReader(z)); err != nil || string(got) != data {
		t.Errorf("byte by byte: %d bytes, error %v", len(got), err)
	}
	for name, edit := range map[string]func(s *Storage, b []byte){
		"CRC":               func(s *Storage, b []byte) { s.CRC32++ },
		"data":              func(s *Storage, b []byte) { b[s.Offset+8] ^= 0x55 },
		"short":             func(s *Storage, b []byte) { s.Compressed -= 9 },
		"longer than said":  func(s *Storage, b []byte) { s.Bytes-- },
		"shorter than said": func(s *Storage, b []byte) { s.Bytes++ },
	} {
		s, b := s, bytes.Clone(file)
		edit(&s, b)
		err := s.Inflate(bytes.NewReader(b), make([]byte, s.Bytes))
		var e *rule.Error
		if !errors.As(err, &e) || e.Rule != rule.TorchContainer {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := s.Inflate(bytes.NewReader(file[:s.Offset+9]), dst); !errors.Is(err, rule.ErrTruncated) {
		t.Errorf("file that became shorter: %v", err)
	}
	var e *rule.Error
	if err := s.Inflate(failingReader{}, dst); !errors.Is(err, errDisk) || !errors.As(err, &e) || e.Rule != "" {
		t.Errorf("error of the reader: %v", err)
	}
}

var errDisk = errors.New("disk on fire")

type failingReader struct{}

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// TestReaderErrors protects the difference between a bad file and a bad disk:
// the former may be remembered, the latter may not. A byte that cannot be read,
// wherever it is, makes Read fail with the reader's error, or was not needed.
func TestReaderErrors(t *testing.T) {
	legacy, err := os.ReadFile(filepath.Join(goldenDir, "pt/views_legacy.bin"))
	if err != nil {
		t.Fatal(err)
	}
	// What is read to tell the container, 512 bytes, and to find the directory,
	// the last 64 KiB, must not hide the rest.
	nothing := strings.Repeat("N0", 300)
	pickle := new(writer).op(nothing, '(').tensor("0", 1).tensor("1", 1).op('t', '.').String()
	one, pad := float32s(1), strings.Repeat(float32s(2), 20_000)
	for name, b := range map[string][]byte{
		"legacy":   append(legacy, pad...),
		"neither":  []byte(nothing + "N." + pad),
		"stored":   zipFileOf(t, "a/data.pkl", pickle, "a/data/0", one, "a/data/1", pad),
		"deflated": zipFileOf(t, "a/data.pkl*", pickle, "a/data/0*", one, "a/data/1", pad),
	} {
		failed := 0
		for n := 0; n < 1500; n += 3 {
			for _, bad := range []error{errDisk, io.EOF} {
				f, err := Read(&holedReader{b, int64(n), bad}, int64(len(b)), Limits{})
				if err == nil || name == "neither" && n >= len(nothing)+2 {
					if f == nil {
						continue
					}
					for _, ts := range f.Tensors {
						if ts.Err != nil {
							t.Fatalf("%s, %v at byte %d: %v", name, bad, n, ts.Err)
						}
					}
					continue
				}
				failed++
				var e *rule.Error
				if !errors.As(err, &e) || bad == errDisk && (e.Rule != "" || !errors.Is(err, errDisk)) ||
					bad == io.EOF && e.Rule != rule.Truncated {
					t.Fatalf("%s, %v at byte %d: %v", name, bad, n, err)
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s: no read failed", name)
		}
		_, err = Read(bytes.NewReader(b), int64(len(b))+100, Limits{})
		if strings.HasSuffix(name, "ed") && !errors.Is(err, rule.ErrTruncated) {
			t.Errorf("%s: 100 bytes missing at the end: error %v", name, err)
		}
	}
	var e *rule.Error
	if _, err := Read(failingReader{}, 1000, Limits{}); !errors.Is(err, errDisk) || !errors.As(err, &e) || e.Rule != "" {
		t.Errorf("error %v", err)
	}
}

// holedReader fails with err for reads that need byte n.
type holedReader struct {
	b   []byte
	n   int64
	err error
}

func (h *holedReader) ReadAt(p []byte, off int64) (int, error) {
	if off <= h.n && h.n < off+int64(len(p)) {
		return copy(p, h.b[off:h.n]), h.err
	}
	n := copy(p, h.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestHugeSparse opens a file of 2 GiB of which only the pickle and the
// directory exist on disk.
func TestHugeSparse(t *testing.T) {
	const storage = 1 << 30
	path := filepath.Join(t.TempDir(), "huge.bin")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size := writeSparse(t, file, storage)
	r := countedFile{f: file}
	begin := time.Now()
	f, err := Read(&r, size, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of %d read in %v", r.n, size, time.Since(begin))
	if r.n > 200<<10 {
		t.Errorf("%d bytes read", r.n)
	}
	check(t, f, size)
	if len(f.Tensors) != 2 || f.Storages[1].Bytes != storage {
		t.Errorf("%+v", f)
	}
}

type countedFile struct {
	f *os.File
	n int64
}

func (c *countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.f.ReadAt(p, off)
	c.n += int64(n)
	return n, err
}

// writeSparse writes an archive of data.pkl and two storages of n bytes that
// are holes, and returns its size.
func writeSparse(t *testing.T, file *os.File, n int64) int64 {
	w := new(writer)
	w.op('}').str("a").tensor("0", int(n/4)).op('s').str("b").tensor("1", int(n/4)).op('s', '.')
	var dir bytes.Buffer
	pos := int64(0)
	count := 0
	for _, e := range []struct {
		name string
		data []byte
		size int64
	}{{"m/data.pkl", w.Bytes(), int64(w.Len())}, {"m/data/0", nil, n}, {"m/data/1", nil, n}} {
		var h [lenLocal]byte
		le.PutUint32(h[0:], sigLocal)
		le.PutUint32(h[18:], uint32(e.size))
		le.PutUint32(h[22:], uint32(e.size))
		le.PutUint16(h[26:], uint16(len(e.name)))
		if _, err := file.WriteAt(append(append(h[:], e.name...), e.data...), pos); err != nil {
			t.Fatal(err)
		}
		var c [lenCentral]byte
		le.PutUint32(c[0:], sigCentral)
		copy(c[20:28], h[18:26])
		le.PutUint16(c[28:], uint16(len(e.name)))
		le.PutUint32(c[42:], uint32(pos))
		dir.Write(c[:])
		dir.WriteString(e.name)
		pos += lenLocal + int64(len(e.name)) + e.size
		count++
	}
	var end [lenEnd]byte
	le.PutUint32(end[0:], sigEnd)
	le.PutUint16(end[10:], uint16(count))
	le.PutUint32(end[12:], uint32(dir.Len()))
	le.PutUint32(end[16:], uint32(pos))
	dir.Write(end[:])
	if _, err := file.WriteAt(dir.Bytes(), pos); err != nil {
		t.Fatal(err)
	}
	return pos + int64(dir.Len())
}
