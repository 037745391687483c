package pytorch

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// rawEntry is an entry of an archive whose every claim can be chosen.
type rawEntry struct {
	name, data string
	extra      int    // length of the local extra field
	flags      uint16 // of the local header
	noSizes    bool   // the local header leaves them zero
	wide       bool   // sizes and offset are in a zip64 extra field
	local      uint64 // added to the offset of the local header
}

// rawZip makes an archive behind a prefix; wide, with a zip64 end record.
func rawZip(prefix string, wide bool, entries ...rawEntry) []byte {
	var body, dir []byte
	for _, e := range entries {
		at := uint64(len(body)) + e.local
		size := uint32(len(e.data))
		var h [lenLocal]byte
		le.PutUint32(h[:], sigLocal)
		le.PutUint16(h[6:], e.flags)
		if !e.noSizes {
			le.PutUint32(h[18:], size)
			le.PutUint32(h[22:], size)
		}
		le.PutUint16(h[26:], uint16(len(e.name)))
		le.PutUint16(h[28:], uint16(e.extra))
		body = append(append(append(append(body, h[:]...), e.name...), make([]byte, e.extra)...), e.data...)

		var c [lenCentral]byte
		le.PutUint32(c[:], sigCentral)
		le.PutUint16(c[28:], uint16(len(e.name)))
		le.PutUint32(c[20:], size)
		le.PutUint32(c[24:], size)
		le.PutUint32(c[42:], uint32(at))
		var extra []byte
		if e.wide {
			le.PutUint16(c[30:], 4+5+4+24)
			le.PutUint32(c[20:], absent32)
			le.PutUint32(c[24:], absent32)
			le.PutUint32(c[42:], absent32)
			extra = append([]byte{0x99, 0x99, 5, 0, 1, 2, 3, 4, 5}, 1, 0, 24, 0)
			for _, v := range []uint64{uint64(size), uint64(size), at} {
				extra = le.AppendUint64(extra, v)
			}
		}
		dir = append(append(append(dir, c[:]...), e.name...), extra...)
	}
	var end [lenEnd]byte
	le.PutUint32(end[:], sigEnd)
	off, count := len(body), len(entries)
	if wide {
		var e64 [lenEnd64]byte
		le.PutUint32(e64[:], sigEnd64)
		le.PutUint64(e64[4:], lenEnd64-12)
		le.PutUint64(e64[32:], uint64(count))
		le.PutUint64(e64[40:], uint64(len(dir)))
		le.PutUint64(e64[48:], uint64(off))
		var loc [lenLocator]byte
		le.PutUint32(loc[:], sigLocator)
		le.PutUint64(loc[8:], uint64(off+len(dir)))
		tail := append(e64[:], loc[:]...)
		le.PutUint16(end[10:], absent16)
		le.PutUint32(end[12:], absent32)
		le.PutUint32(end[16:], absent32)
		return bytes.Join([][]byte{[]byte(prefix), body, dir, tail, end[:]}, nil)
	}
	le.PutUint16(end[10:], uint16(count))
	le.PutUint32(end[12:], uint32(len(dir)))
	le.PutUint32(end[16:], uint32(off))
	return bytes.Join([][]byte{[]byte(prefix), body, dir, end[:]}, nil)
}

func TestRawZip(t *testing.T) {
	pkl := rawEntry{name: "a/data.pkl", data: onePickle(2)}
	data := rawEntry{name: "a/data/0", data: float32s(1, 2)}
	edit := func(f func(e *rawEntry)) rawEntry { e := data; f(&e); return e }
	const prefix = "#!/bin/sh\nexit 0\n"
	for _, c := range []struct {
		name string
		file []byte
		want string // values, or where it is refused
	}{
		{"plain", rawZip("", false, pkl, data), "w=f32[1 2]"},
		{"prefix", rawZip(prefix, false, pkl, data), "w=f32[1 2]"},
		{"zip64 end", rawZip("", true, pkl, data), "w=f32[1 2]"},
		{"zip64 end and prefix", rawZip(prefix, true, pkl, data), "w=f32[1 2]"},
		{"zip64 entry", rawZip("", false, pkl, edit(func(e *rawEntry) { e.wide = true })), "w=f32[1 2]"},
		{"zip64 entry and prefix", rawZip(prefix, true, pkl, edit(func(e *rawEntry) { e.wide = true })), "w=f32[1 2]"},
		{"padded by torch", rawZip("", false, pkl, edit(func(e *rawEntry) { e.extra = 63 })), "w=f32[1 2]"},
		{"padded further", rawZip("", false, pkl, edit(func(e *rawEntry) { e.extra = 60000 })), "w=f32[1 2]"},
		{"sizes in a descriptor", rawZip("", false, pkl, edit(func(e *rawEntry) { e.flags, e.noSizes = 8, true })), "w=f32[1 2]"},
		{"sizes nowhere", rawZip("", false, pkl, edit(func(e *rawEntry) { e.noSizes = true })), "w PT-001 contradicts"},
		{"negative offset", rawZip(prefix, true, pkl, edit(func(e *rawEntry) { e.wide, e.local = true, -uint64(lenLocal+len(pkl.name)+len(pkl.data)+5) })), "w PT-001 beyond"},
		{"largest offset", rawZip(prefix, true, pkl, edit(func(e *rawEntry) {
			e.wide, e.local = true, math.MaxInt64-uint64(lenLocal+len(pkl.name)+len(pkl.data))
		})), "w PT-001 beyond"},
		{"offset of no header", rawZip("", false, pkl, edit(func(e *rawEntry) { e.local = 1 })), "w PT-001 no local header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readBounded(t, c.file)
			if !strings.Contains(c.want, "=") {
				testHostile(t, f, err, c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := show(t, f, c.file); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
}
