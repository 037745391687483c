package pytorch

import (
	"io"

	"nibble/internal/rule"
)

// zipEntry is an entry of an archive, as the central directory has it.
type zipEntry struct {
	method     uint16
	crc        uint32
	compressed int64
	size       int64
	local      int64 // absolute offset of the local header
	flags      uint16
	err        *rule.Error // why the entry cannot be used
}

// archive is the entries of a zip by name.
type archive struct {
	r       io.ReaderAt
	dir     *directory
	entries map[string]*zipEntry
	order   []string // as in the directory, each name once
}

// openArchive reads the central directory and nothing else.
func openArchive(r io.ReaderAt, size int64, lim Limits) (*archive, error) {
	dir, err := findDirectory(r, size)
	if err != nil {
		return nil, err
	}
	if dir.count > uint64(lim.Records) {
		return nil, rule.New(rule.TorchLimit, "limit exceeded: zip of %d entries", dir.count).At(dir.off)
	}
	a := &archive{r: r, dir: dir, entries: make(map[string]*zipEntry)}
	// The meter is only for the window: names are kept, and are in the file.
	src := newSource(r, dir.off, dir.off+dir.size, new(meter))
	for range dir.count {
		if err := a.readEntry(src); err != nil {
			return nil, err
		}
	}
	if src.left > 0 {
		return nil, badZip("zip directory with %d more bytes than its entries have", src.left).At(src.pos)
	}
	return a, nil
}

func (a *archive) readEntry(src *source) error {
	at := src.pos
	if src.left < lenCentral {
		return badZip("zip directory truncated").At(at)
	}
	var h [lenCentral]byte
	if err := src.copyTo(h[:]); err != nil {
		return err
	}
	if le.Uint32(h[:]) != sigCentral {
		return badZip("zip directory entry without its signature").At(at)
	}
	nameLen, extraLen, commentLen := int64(le.Uint16(h[28:])), int64(le.Uint16(h[30:])), int64(le.Uint16(h[32:]))
	if nameLen+extraLen+commentLen > src.left {
		return badZip("zip directory truncated").At(at)
	}
	name := make([]byte, nameLen)
	extra := make([]byte, extraLen)
	if err := src.copyTo(name); err != nil {
		return err
	}
	if err := src.copyTo(extra); err != nil {
		return err
	}
	if err := src.skip(commentLen); err != nil {
		return err
	}
	a.add(string(name), a.parse(string(name), h[:], extra))
	return nil
}

// add keeps an entry. Of two with one name neither can be trusted: readers
// disagree on which of them counts.
func (a *archive) add(name string, e *zipEntry) {
	if first, dup := a.entries[name]; dup {
		first.err = badZip("duplicate zip entry %q", clip(name)).At(e.local)
		return
	}
	a.entries[name] = e
	a.order = append(a.order, name)
}

// parse decodes a central header with its extra field. Its claims are kept in
// the entry; those that cannot be are its err.
func (a *archive) parse(name string, h, extra []byte) *zipEntry {
	e := &zipEntry{flags: le.Uint16(h[8:]), method: le.Uint16(h[10:]), crc: le.Uint32(h[16:])}
	size, compressed, local, ok := zip64(extra, uint64(le.Uint32(h[24:])), uint64(le.Uint32(h[20:])), uint64(le.Uint32(h[42:])))
	e.size, e.compressed, e.local = int64(size), int64(compressed), int64(local)+a.dir.base
	switch {
	case !ok || e.size < 0 || e.compressed < 0:
		e.err = badZip("zip entry %q without its zip64 sizes", clip(name))
	case int64(local) < 0 || e.local < 0 || e.local > a.dir.off-lenLocal:
		e.err = badZip("zip entry %q lies beyond the archive", clip(name))
	case e.flags&flagCrypted != 0:
		e.err = badZip("zip entry %q is encrypted", clip(name)).At(e.local)
	case e.method == stored && e.size != e.compressed:
		e.err = badZip("stored zip entry %q of two sizes: %d and %d bytes", clip(name), e.compressed, e.size).At(e.local)
	case e.method == deflated && (e.size-64)/maxInflate > e.compressed:
		e.err = badZip("zip entry %q of %d bytes cannot inflate to %d", clip(name), e.compressed, e.size).At(e.local)
	case e.method != stored && e.method != deflated:
		e.err = badZip("zip entry %q: compression method %d is not supported", clip(name), e.method).At(e.local)
	}
	return e
}

// zip64 replaces those of the values that do not fit 32 bits by the ones in the
// extra field, where they stand in this order.
func zip64(extra []byte, size, compressed, local uint64) (uint64, uint64, uint64, bool) {
	var wide []byte
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if extra = extra[4:]; n > len(extra) {
			break
		}
		if id == 1 {
			wide = extra[:n]
			break
		}
		extra = extra[n:]
	}
	ok := true
	for _, v := range []*uint64{&size, &compressed, &local} {
		if *v != absent32 {
			continue
		}
		if len(wide) < 8 {
			ok = false
			continue
		}
		*v = le.Uint64(wide)
		wide = wide[8:]
	}
	return size, compressed, local, ok
}

// data returns where the data of an entry begins, which only the local header
// tells: its extra field is not that of the directory. Whatever else the local
// header says must agree with the directory.
func (a *archive) data(name string, e *zipEntry) (int64, error) {
	if e.err != nil {
		return 0, e.err
	}
	// One read is enough for the header of torch, which pads the data to a
	// multiple of 64 by an extra field.
	const usualExtra = 128
	b := make([]byte, min(lenLocal+int64(len(name))+usualExtra, a.dir.off-e.local))
	if err := readFull(a.r, b, e.local); err != nil {
		return 0, err
	}
	nameLen, extraLen := int64(le.Uint16(b[26:])), int64(le.Uint16(b[28:]))
	head := lenLocal + nameLen + extraLen
	off := e.local + head
	if le.Uint32(b) != sigLocal || off > a.dir.off {
		return 0, badZip("no local header for zip entry %q", clip(name)).At(e.local)
	}
	if head > int64(len(b)) {
		b = make([]byte, head)
		if err := readFull(a.r, b, e.local); err != nil {
			return 0, err
		}
	}
	nameAt, extra := b[lenLocal:lenLocal+nameLen], b[lenLocal+nameLen:head]
	if string(nameAt) != name || le.Uint16(b[8:]) != e.method || !sizesAgree(b, extra, e) {
		return 0, badZip("local header of zip entry %q contradicts the directory", clip(name)).At(e.local)
	}
	if e.compressed > a.dir.off-off {
		return 0, badZip("zip entry %q truncated: %d bytes of %d", clip(name), a.dir.off-off, e.compressed).At(off)
	}
	return off, nil
}

// sizesAgree compares the sizes in a local header with the directory. A writer
// that did not know them yet left them zero.
func sizesAgree(h, extra []byte, e *zipEntry) bool {
	size, compressed, _, ok := zip64(extra, uint64(le.Uint32(h[22:])), uint64(le.Uint32(h[18:])), 0)
	if !ok {
		return false
	}
	const descriptor = 1 << 3
	if le.Uint16(h[6:])&descriptor != 0 && size == 0 && compressed == 0 {
		return true
	}
	return size == uint64(e.size) && compressed == uint64(e.compressed)
}
