package pytorch

import (
	"compress/flate"
	"hash"
	"hash/crc32"
	"io"

	"nibble/internal/rule"
)

// maxInflate is the most bytes that deflate can make of one.
const maxInflate = 1032

// Inflater reads a deflated storage from front to back. It is an io.Reader for
// one goroutine. Before it hands out the last bytes it checks size and CRC: an
// error then says that what was read before is of no use.
type Inflater struct {
	z    *inflater
	left int64
}

// Open starts to inflate a deflated storage from r, the file it was described
// from. The caller closes it.
func (s *Storage) Open(r io.ReaderAt) *Inflater {
	if !s.Deflated {
		panic("pytorch: Open of a storage that is not deflated")
	}
	return &Inflater{newInflater(io.NewSectionReader(r, s.Offset, s.Compressed), s.Offset, s.Compressed, s.CRC32), s.Bytes}
}

// Read is that of an io.Reader: io.EOF stands behind the last byte.
func (i *Inflater) Read(p []byte) (int, error) {
	if i.left == 0 {
		return 0, io.EOF
	}
	n, err := i.z.Read(p[:min(int64(len(p)), i.left)])
	if i.left -= int64(n); i.left == 0 {
		// io.ReadFull would not hear an error beside the last byte.
		if err := i.z.finish(); err != nil {
			return 0, err
		}
		return n, nil
	}
	if err == io.EOF {
		err = i.z.explain(io.ErrUnexpectedEOF)
	}
	return n, err
}

// Close gives the memory of the decompressor back.
func (i *Inflater) Close() { i.z.close() }

// Inflate reads a whole deflated storage into dst, which must hold exactly
// s.Bytes. On an error the contents of dst are of no use. It keeps no slice.
func (s *Storage) Inflate(r io.ReaderAt, dst []byte) error {
	if int64(len(dst)) != s.Bytes {
		panic("pytorch: Inflate into a buffer of another size")
	}
	z := s.Open(r)
	defer z.Close()
	if s.Bytes == 0 {
		return z.z.finish()
	}
	_, err := io.ReadFull(z, dst)
	return err
}

// inflater inflates one entry and checks its CRC at the end.
type inflater struct {
	z    io.ReadCloser
	sum  hash.Hash32
	want uint32
	off  int64 // of the compressed data, for errors
	raw  *errReader
}

// errReader remembers the error of the file below the decompressor, which
// would be mistaken for one of the format.
type errReader struct {
	r   io.Reader
	pos int64
	end int64
	err error
}

func (e *errReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.pos += int64(n)
	switch {
	case err == io.EOF && e.pos < e.end:
		e.err = shrunk(e.pos)
	case err != nil && err != io.EOF:
		e.err = ioError(e.pos, err)
	}
	return n, err
}

// newInflater inflates the n bytes at off that r delivers.
func newInflater(r io.Reader, off, n int64, crc uint32) *inflater {
	raw := &errReader{r: r, pos: off, end: off + n}
	return &inflater{flate.NewReader(raw), crc32.NewIEEE(), crc, off, raw}
}

func (f *inflater) Read(p []byte) (int, error) {
	n, err := f.z.Read(p)
	f.sum.Write(p[:n])
	if err != nil && err != io.EOF {
		err = f.explain(err)
	}
	return n, err
}

// finish checks that the data ends here and has the right CRC.
func (f *inflater) finish() error {
	var one [1]byte
	switch n, err := f.z.Read(one[:]); {
	case n != 0:
		return rule.New(rule.TorchContainer, "deflated zip entry larger than it says").At(f.off)
	case err != io.EOF:
		return f.explain(err)
	}
	if f.sum.Sum32() != f.want {
		return rule.New(rule.TorchContainer, "deflated zip entry with a wrong CRC").At(f.off)
	}
	return nil
}

func (f *inflater) explain(err error) error {
	if f.raw.err != nil {
		return f.raw.err
	}
	if _, ok := err.(*rule.Error); ok {
		return err
	}
	return rule.New(rule.TorchContainer, "deflated zip entry: %w", err).At(f.off)
}

func (f *inflater) close() { f.z.Close() }
