package store_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// pickler writes pickles by hand, as torch.save would or would not.
type pickler struct{ bytes.Buffer }

func (p *pickler) str(s string) {
	p.WriteByte('X')
	p.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	p.WriteString(s)
}

func (p *pickler) int(n int64) {
	p.WriteString("\x8a\x08")
	p.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func (p *pickler) ints(ns ...int64) {
	p.WriteByte('(')
	for _, n := range ns {
		p.int(n)
	}
	p.WriteByte('t')
}

func (p *pickler) global(module, name string) { fmt.Fprintf(p, "c%s\n%s\n", module, name) }

// tensor writes a view, from element start on, of the storage called key,
// which has numel elements of torch's class.
func (p *pickler) tensor(class, key string, numel, start int64, shape, stride []int64) {
	p.global("torch._utils", "_rebuild_tensor_v2")
	p.WriteString("((")
	p.str("storage")
	p.global("torch", class)
	p.str(key)
	p.str("cpu")
	p.int(numel)
	p.WriteString("tQ")
	p.int(start)
	p.ints(shape...)
	p.ints(stride...)
	p.WriteString("\x89NtR")
}

// vector writes a contiguous tensor of one dimension.
func (p *pickler) vector(class, key string, n int64) {
	p.tensor(class, key, n, 0, []int64{n}, []int64{1})
}

func (p *pickler) dict(items func()) {
	p.WriteString("}(")
	items()
	p.WriteByte('u')
}

// torchFile writes a torch zip of the dict that items writes. Storages whose
// key ends in * are deflated, without it. order is the byteorder entry.
func torchFile(t testing.TB, items func(p *pickler), storages map[string][]byte, order string) string {
	t.Helper()
	p := &pickler{}
	p.WriteString("\x80\x02")
	p.dict(func() { items(p) })
	p.WriteByte('.')
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	add := func(name string, data []byte, method uint16) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = f.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("a/data.pkl", p.Bytes(), zip.Store)
	add("a/version", []byte("3\n"), zip.Store)
	if order != "" {
		add("a/byteorder", []byte(order), zip.Store)
	}
	for key, data := range storages {
		if n := len(key) - 1; key[n] == '*' {
			add("a/data/"+key[:n], data, zip.Deflate)
		} else {
			add("a/data/"+key, data, zip.Store)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.pt")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func leF32(v ...float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// ones is the map of 256 ones.
func ones() []byte {
	var m [256]float32
	for i := range m {
		m[i] = 1
	}
	return leF32(m[:]...)
}
