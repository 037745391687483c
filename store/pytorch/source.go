package pytorch

import (
	"bytes"
	"errors"
	"io"

	"nibble/internal/rule"
)

const (
	windowSize = 32 << 10
	// maxText is the longest text that is kept. Longer ones are payloads
	// (arrays pickled as strings), never names, and are skipped.
	maxText = 64 << 10
)

// source reads a pickle front to back through a small window. Lengths in the
// pickle are compared with what is left before anything is allocated, and long
// payloads are skipped without being read where the bytes lie in the file.
type source struct {
	r    io.Reader
	seek io.Seeker // nil when r cannot skip
	pos  int64     // of buf[lo]
	left int64     // bytes from pos to the end
	base bool      // pos is an offset in the file, fit for an error
	buf  []byte
	lo   int
	hi   int
}

// newSource reads [off, end) of r.
func newSource(r io.ReaderAt, off, end int64, m *meter) *source {
	sec := io.NewSectionReader(r, off, end-off)
	return &source{r: &feeder{sec, m, 1}, seek: sec, pos: off, left: end - off, base: true, buf: make([]byte, min(windowSize, max(end-off, 16)))}
}

// newStream reads n bytes of r, which are not bytes of the file itself.
func newStream(r io.Reader, n int64) *source {
	return &source{r: r, left: n, buf: make([]byte, min(windowSize, max(n, 16)))}
}

// fail makes an error of the pickle at offset at.
func (s *source) fail(at int64, id rule.ID, format string, args ...any) *rule.Error {
	e := rule.New(id, format, args...)
	if s.base {
		e.Offset = at
	}
	return e
}

func (s *source) truncated() error {
	return s.fail(s.pos, rule.Pickle, "pickle truncated")
}

// next returns the next n bytes, valid until the next call. n is at most 16 or
// what the window holds.
func (s *source) next(n int) ([]byte, error) {
	if int64(n) > s.left {
		return nil, s.truncated()
	}
	if err := s.fill(n); err != nil {
		return nil, err
	}
	b := s.buf[s.lo : s.lo+n]
	s.advance(n)
	return b, nil
}

func (s *source) advance(n int) {
	s.lo += n
	s.pos += int64(n)
	s.left -= int64(n)
}

// fill makes at least n bytes available in the window, n <= s.left.
func (s *source) fill(n int) error {
	if s.hi-s.lo >= n {
		return nil
	}
	s.hi = copy(s.buf, s.buf[s.lo:s.hi])
	s.lo = 0
	// Never read past the end: what follows a pickle is not ours to count.
	most := int(min(int64(len(s.buf)), s.left))
	m, err := io.ReadAtLeast(s.r, s.buf[s.hi:most], n-s.hi)
	s.hi += m
	if err != nil {
		return s.readErr(err)
	}
	return nil
}

func (s *source) readErr(err error) error {
	var e *rule.Error
	if errors.As(err, &e) { // of an inflater
		return e
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ioError(s.pos, err)
	}
	if s.base {
		return shrunk(s.pos)
	}
	return s.truncated()
}

// ioError wraps an error of the reader, which says nothing about the format.
func ioError(off int64, err error) error {
	if e := (*rule.Error)(nil); errors.As(err, &e) && e.Rule != "" {
		return err // the file says what and where itself
	}
	return &rule.Error{Offset: off, Err: err}
}

// shrunk is the error for bytes that the caller's size promised.
func shrunk(off int64) error {
	return rule.New(rule.Truncated, "file truncated while open").At(off)
}

func (s *source) byte() (byte, error) {
	b, err := s.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// text returns the next n bytes as a string, or "" and false when they are too
// long to be kept.
func (s *source) text(n uint64) (t string, kept bool, err error) {
	if n > uint64(s.left) {
		return "", false, s.truncated()
	}
	if n > maxText {
		return "", false, s.skip(int64(n))
	}
	if n <= uint64(len(s.buf)) {
		b, err := s.next(int(n))
		return string(b), true, err
	}
	b := make([]byte, n)
	if err := s.copyTo(b); err != nil {
		return "", false, err
	}
	return string(b), true, nil
}

// copyTo fills b, of any length.
func (s *source) copyTo(b []byte) error {
	for len(b) > 0 {
		w, err := s.next(min(len(b), len(s.buf)))
		if err != nil {
			return err
		}
		b = b[copy(b, w):]
	}
	return nil
}

// skip passes over n bytes, n <= s.left.
func (s *source) skip(n int64) error {
	k := min(n, int64(s.hi-s.lo))
	s.advance(int(k))
	n -= k
	if n == 0 {
		return nil
	}
	if s.seek != nil {
		if _, err := s.seek.Seek(n, io.SeekCurrent); err != nil {
			return ioError(s.pos, err)
		}
	} else if _, err := io.CopyN(io.Discard, s.r, n); err != nil {
		return s.readErr(err)
	}
	s.pos += n
	s.left -= n
	return nil
}

// line returns the bytes up to the next newline, which is consumed, or "" and
// false when they are too long to be kept.
func (s *source) line() (t string, kept bool, err error) {
	var b []byte
	long := false
	for {
		if s.left == 0 {
			return "", false, s.truncated()
		}
		if err := s.fill(1); err != nil {
			return "", false, err
		}
		w := s.buf[s.lo:s.hi]
		i := bytes.IndexByte(w, '\n')
		n := i
		if i < 0 {
			n = len(w)
		}
		if long = long || len(b)+n > maxText; long {
			b = nil
		} else {
			b = append(b, w[:n]...)
		}
		if i >= 0 {
			s.advance(n + 1)
			return string(b), !long, nil
		}
		s.advance(n)
	}
}
