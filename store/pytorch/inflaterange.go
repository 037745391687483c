package pytorch

import "io"

// InflateRange is Inflate for the bytes of the storage at off: it inflates
// from the start and keeps only what fits dst. The CRC is checked when dst
// reaches the end of the storage. It keeps no slice.
func (s *Storage) InflateRange(r io.ReaderAt, dst []byte, off int64) error {
	if !s.Deflated || off < 0 || off > s.Bytes-int64(len(dst)) {
		panic("pytorch: InflateRange of a stored storage or outside of it")
	}
	z := newInflater(io.NewSectionReader(r, s.Offset, s.Compressed), s.Offset, s.CRC32)
	defer z.close()
	if _, err := io.CopyN(io.Discard, z, off); err != nil {
		return z.explain(err)
	}
	if _, err := io.ReadFull(z, dst); err != nil {
		return z.explain(err)
	}
	if off+int64(len(dst)) < s.Bytes {
		return nil
	}
	return z.finish()
}
