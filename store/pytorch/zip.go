package pytorch

import (
	"encoding/binary"
	"io"

	"nibble/internal/rule"
)

// A zip archive is read from its end: the end record (with its zip64 twin)
// names the central directory, and that names the entries. archive/zip is of no
// use here: what matters is where the data of a stored entry lies in the file,
// and that every two statements of the archive about that agree.

const (
	sigLocal    = 0x04034b50
	sigCentral  = 0x02014b50
	sigEnd      = 0x06054b50
	sigEnd64    = 0x06064b50
	sigLocator  = 0x07064b50
	lenLocal    = 30
	lenCentral  = 46
	lenEnd      = 22
	lenEnd64    = 56
	lenLocator  = 20
	maxComment  = 1<<16 - 1
	absent16    = 1<<16 - 1
	absent32    = 1<<32 - 1
	stored      = 0
	deflated    = 8
	flagCrypted = 1 << 0
)

// directory is where the central directory of an archive is.
type directory struct {
	off, size int64 // absolute
	count     uint64
	base      int64 // what offsets in the archive are relative to: the length of a prefix
}

var le = binary.LittleEndian

func badZip(format string, args ...any) *rule.Error {
	return rule.New(rule.TorchContainer, format, args...)
}

// readFull reads all of b at off, which must lie inside the file.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return shrunk(off + int64(n))
	}
	return ioError(off+int64(n), err)
}

// findDirectory locates the central directory. A comment may hold the bytes of
// an end record, so each place that looks like one is tried, and the archive is
// refused when two of them are good: readers would disagree on it.
func findDirectory(r io.ReaderAt, size int64) (*directory, error) {
	from := max(0, size-lenEnd-maxComment)
	tail := make([]byte, size-from)
	if err := readFull(r, tail, from); err != nil {
		return nil, err
	}
	var found *directory
	for i := len(tail) - lenEnd; i >= 0; i-- {
		end := tail[i:]
		if le.Uint32(end) != sigEnd || i+lenEnd+int(le.Uint16(end[20:])) != len(tail) {
			continue
		}
		d, err := tryEnd(r, from+int64(i), end)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		if found != nil {
			return nil, badZip("zip with two end records").At(from + int64(i))
		}
		found = d
	}
	if found == nil {
		return nil, badZip("zip truncated: no end record")
	}
	return found, nil
}

// tryEnd reads the end record at pos. It returns nil where there is no central
// directory as the record says.
func tryEnd(r io.ReaderAt, pos int64, end []byte) (*directory, error) {
	count, size, off := uint64(le.Uint16(end[10:])), uint64(le.Uint32(end[12:])), uint64(le.Uint32(end[16:]))
	limit := pos // where the directory ends
	if e64, at, err := findEnd64(r, pos); err != nil {
		return nil, err
	} else if e64 != nil {
		count, size, off = le.Uint64(e64[32:]), le.Uint64(e64[40:]), le.Uint64(e64[48:])
		limit = at
	} else if count == absent16 && size == absent32 {
		return nil, nil
	}
	if size > uint64(limit) || off > uint64(limit)-size || count > size/lenCentral {
		return nil, nil
	}
	d := &directory{size: int64(size), count: count}
	d.off = limit - d.size
	d.base = d.off - int64(off)
	if ok, err := startsDirectory(r, d); !ok || err != nil {
		return nil, err
	}
	return d, nil
}

func startsDirectory(r io.ReaderAt, d *directory) (bool, error) {
	if d.count == 0 {
		return d.size == 0, nil
	}
	var sig [4]byte
	if err := readFull(r, sig[:], d.off); err != nil {
		return false, err
	}
	return le.Uint32(sig[:]) == sigCentral, nil
}

// findEnd64 reads the zip64 end record that a locator in front of the end
// record at pos promises; nil if there is none. It lies where the locator says
// or, when something was put in front of the archive, right before the locator.
func findEnd64(r io.ReaderAt, pos int64) (e64 []byte, at int64, err error) {
	if pos < lenLocator+lenEnd64 {
		return nil, 0, nil
	}
	var loc [lenLocator]byte
	if err := readFull(r, loc[:], pos-lenLocator); err != nil {
		return nil, 0, err
	}
	if le.Uint32(loc[:]) != sigLocator {
		return nil, 0, nil
	}
	b := make([]byte, lenEnd64)
	for _, at := range []uint64{le.Uint64(loc[8:]), uint64(pos - lenLocator - lenEnd64)} {
		if at > uint64(pos-lenLocator-lenEnd64) {
			continue
		}
		if err := readFull(r, b, int64(at)); err != nil {
			return nil, 0, err
		}
		if le.Uint32(b) == sigEnd64 {
			return b, int64(at), nil
		}
	}
	return nil, 0, nil
}
