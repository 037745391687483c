package store

import (
	"context"
	"io"

	"nibble/cache"
	"nibble/store/pytorch"
)

// torchStorage is a run of bytes in a torch file that tensors view.
type torchStorage struct {
	pytorch.Storage
	shard *shard

	// For a deflated storage:
	blob   *Tensor       // stands for the inflated bytes in the cache
	turn   chan struct{} // holds a token while nobody looks at what follows
	bad    error         // why it cannot be inflated, if that was found out
	copied io.ReaderAt   // the inflated bytes, once they went to the spill
}

func newTorchStorage(st *Store, sh *shard, s *pytorch.Storage) *torchStorage {
	ts := &torchStorage{Storage: *s, shard: sh}
	if s.Deflated {
		ts.blob = &Tensor{st: st, name: "storage " + s.Key}
		ts.turn = make(chan struct{}, 1)
		ts.pass()
	}
	return ts
}

// window returns bytes [off, off+n) of the storage: in place where it can, else
// in *scratch.
func (s *torchStorage) window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error) {
	if !s.Deflated {
		return s.shard.file.Window(s.Offset+off, n, scratch)
	}
	buf, err := grow(scratch, n)
	if err != nil {
		return nil, err
	}
	lease, ok, err := s.borrow(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		defer lease.Release()
		copy(buf, lease.Bytes()[off:])
		return buf, nil
	}
	f, err := s.spilled(ctx)
	if err != nil {
		return nil, err
	}
	_, err = f.ReadAt(buf, off)
	return buf, err
}

// whole returns bytes [off, off+n) of the storage where that costs no memory,
// until release is called; else nil.
func (s *torchStorage) whole(ctx context.Context, off, n int64) (src []byte, release func(), err error) {
	if !s.Deflated {
		if !s.shard.file.Mapped() {
			return nil, nil, nil
		}
		src, err = s.shard.file.Window(s.Offset+off, n, nil)
		return src, func() {}, err
	}
	lease, ok, err := s.borrow(ctx)
	if err != nil || !ok {
		return nil, nil, err
	}
	return lease.Bytes()[off : off+n], func() { lease.Release() }, nil
}

// borrow pins the inflated storage in the cache. It inflates it first if the
// budget has room for it at once, and never waits for the budget: the caller
// holds bytes of it. ok is false when there is no room.
func (s *torchStorage) borrow(ctx context.Context) (l cache.Lease, ok bool, err error) {
	st, k := s.blob.st, key{t: s.blob, raw: true}
	if l, ok := st.cache.Borrow(k); ok {
		return l, true, nil
	}
	if err := s.take(ctx); err != nil {
		return cache.Lease{}, false, err
	}
	bad, spilled := s.bad, s.copied != nil
	s.pass()
	if bad != nil || spilled {
		return cache.Lease{}, false, bad
	}
	// Who finds another at it waits for the outcome, and then borrows.
	_, _ = st.cache.Prefetch(st.closing, []cache.Item[key]{{Key: k, Size: s.Bytes}}, s.fill)
	if err := st.cache.Wait(ctx, func(other key) bool { return other == k }); err != nil {
		return cache.Lease{}, false, err
	}
	l, ok = st.cache.Borrow(k)
	return l, ok, nil
}

// take waits for the caller's turn, which ends with pass.
func (s *torchStorage) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *torchStorage) pass() { s.turn <- struct{}{} }

// spilled is the inflated storage in the shard's temporary file, put there on
// first use. Its size and CRC have been checked: a part of a damaged storage is
// not to be trusted either.
func (s *torchStorage) spilled(ctx context.Context) (io.ReaderAt, error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer s.pass()
	if s.bad != nil {
		return nil, s.bad
	}
	if s.copied != nil {
		return s.copied, nil
	}
	r, w, err := s.shard.spill.region(s.Bytes)
	if err != nil {
		return nil, err
	}
	if err := s.inflate(ctx, w); err != nil {
		return nil, err
	}
	s.copied = r
	return r, nil
}

// fill is a cache's loader: it inflates the storage into its one buffer.
func (s *torchStorage) fill(ctx context.Context, _ []cache.Item[key], bufs [][]byte) error {
	st := s.blob.st
	if err := st.begin(); err != nil {
		return err
	}
	defer st.end()
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.pass()
	return s.inflate(ctx, &into{bufs[0]})
}

// prove inflates the storage to nowhere, and says whether it is sound.
func (s *torchStorage) prove(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.pass()
	if s.bad != nil || s.copied != nil {
		return s.bad
	}
	return s.inflate(ctx, io.Discard)
}

// inflate writes the whole storage to w, in the caller's turn, and remembers an
// error of the bytes.
func (s *torchStorage) inflate(ctx context.Context, w io.Writer) error {
	z := s.Open(&contextReader{ctx, s.shard.file})
	defer z.Close()
	_, err := io.Copy(w, &contextStream{ctx, z})
	if err != nil && lasting(err) {
		s.bad = err
	}
	return err
}

// into writes to a buffer that has room for all.
type into struct{ rest []byte }

func (w *into) Write(p []byte) (int, error) {
	n := copy(w.rest, p)
	w.rest = w.rest[n:]
	return n, nil
}

// source is where in the file bytes [off, off+n) of the storage come from.
func (s *torchStorage) source(off, n int64) (fileOff, fileN int64) {
	if s.Deflated {
		return s.Offset, s.Compressed
	}
	return s.Offset + off, n
}

// contextReader reads until its context is done.
type contextReader struct {
	ctx context.Context
	r   io.ReaderAt
}

func (c *contextReader) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.ReadAt(p, off)
}

// contextStream is contextReader for a stream.
type contextStream struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextStream) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
