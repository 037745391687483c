package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"nibble/internal/rule"
	"nibble/tensor"
)

// MaxHeader is the longest header in bytes that is read, the limit of the
// reference implementation.
const MaxHeader = 100_000_000

// prefixLen is the length of the field before the header.
const prefixLen = 8

// Tensor describes one stored tensor.
type Tensor struct {
	Name  string // exact, as unescaped from the JSON; may be empty or hold any character
	DType tensor.DType
	Shape tensor.Shape // in elements, also for sub-byte types; read-only
	Begin int64        // absolute byte offset in the file
	End   int64        // absolute; [Begin, End) holds exactly Shape of DType
}

// Header describes a file. It is immutable and safe for concurrent use. Names
// may share one copy of the header's text, which lives as long as any of them.
type Header struct {
	// Tensors in the order of their bytes in the file. Among those that begin
	// and end at the same byte, the order of the header.
	Tensors   []Tensor
	Metadata  map[string]string // __metadata__; nil if absent or null
	DataStart int64             // absolute offset of the first byte after the header

	names names
}

// Lookup returns the index in h.Tensors of the tensor with this exact name.
func (h *Header) Lookup(name string) (i int, ok bool) {
	return h.names.find(h.Tensors, name)
}

// Read reads the header of the file of size bytes behind r. It reads at most
// the header and [SniffLen] bytes, and allocates nothing on the word of a
// length that the file is too short to keep.
//
// A broken rule is a *rule.Error without a path. An error of r itself is
// wrapped, and is no *rule.Error.
func Read(r io.ReaderAt, size int64) (*Header, error) {
	json, err := readJSON(r, size)
	if err != nil {
		return nil, err
	}
	return parse(json, prefixLen+int64(len(json)), size)
}

// Parse parses the JSON of a header, without the length before it. The JSON
// ends at dataStart in a file of size bytes. It is not retained.
func Parse(json []byte, dataStart, size int64) (*Header, error) {
	return parse(bytes.Clone(json), dataStart, size)
}

// parse is Parse of bytes that are never written again.
func parse(json []byte, dataStart, size int64) (*Header, error) {
	if h, ok := scan(json, dataStart, size); ok {
		return h, nil
	}
	return parseComplete(json, dataStart, size)
}

// readJSON returns the bytes of the header behind the length field.
func readJSON(r io.ReaderAt, size int64) ([]byte, error) {
	prefix := make([]byte, min(size, SniffLen))
	if err := readAt(r, prefix, 0); err != nil {
		return nil, err
	}
	if err := notSafetensors(Sniff(prefix, size), prefix); err != nil {
		return nil, err
	}
	n, err := headerLength(prefix, size)
	if err != nil {
		return nil, err
	}
	json := make([]byte, n)
	if err := readAt(r, json, prefixLen); err != nil {
		return nil, err
	}
	return json, nil
}

// headerLength checks the length field against the limit and the file before
// anything is allocated for it.
func headerLength(prefix []byte, size int64) (int64, error) {
	if size < prefixLen {
		return 0, rule.New(rule.HeaderLength, "%w: file has %d bytes, the header's length alone takes %d",
			rule.ErrTruncated, size, prefixLen).At(size)
	}
	n := binary.LittleEndian.Uint64(prefix)
	switch {
	case n > MaxHeader:
		return 0, rule.New(rule.HeaderLength, "header length %d is above the limit of %d: damaged, or not a safetensors file", n, MaxHeader).At(0)
	case n < uint64(len("{}")):
		return 0, rule.New(rule.HeaderLength, "header length %d is too short for any header", n).At(0)
	case int64(n) > size-prefixLen:
		return 0, rule.New(rule.HeaderLength, "%w: file has %d bytes, the header alone reaches to byte %d",
			rule.ErrTruncated, size, prefixLen+n).At(0)
	}
	return int64(n), nil
}

// readAt fills b from offset off. A source that ends early has become shorter
// than the size that its owner was told.
func readAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return rule.New(rule.Truncated, "truncated while open: file ends inside the header").At(off + int64(n))
	}
	return fmt.Errorf("read header: %w", err)
}
