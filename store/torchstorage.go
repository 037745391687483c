package store

import (
	"context"
	"io"
	"os"

	"nibble/cache"
	"nibble/store/pytorch"
	"nibble/tensor"
)

// torchStorage is a run of bytes in a torch file that tensors view.
type torchStorage struct {
	pytorch.Storage
	shard *shard

	// For a deflated storage:
	blob *Tensor       // stands for the inflated bytes in the cache
	turn chan struct{} // holds a token while nobody looks at what follows
	bad  error         // why it cannot be inflated, if that was found out
	file *os.File      // the inflated bytes, where the budget has no room for them
}

func newTorchStorage(st *Store, sh *shard, s *pytorch.Storage) *torchStorage {
	ts := &torchStorage{Storage: *s, shard: sh}
	if s.Deflated {
		name := "storage " + s.Key
		ts.blob = &Tensor{st: st, name: name, e: &entry{
			name: name, dtype: tensor.U8, shape: tensor.Shape{s.Bytes}, numel: s.Bytes, shard: sh, n: s.Bytes,
			view: inflated{ts},
		}}
		ts.turn = make(chan struct{}, 1)
		ts.turn <- struct{}{}
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
	bad, spilled := s.bad, s.file != nil
	s.turn <- struct{}{}
	if bad != nil || spilled {
		return cache.Lease{}, false, bad
	}
	// Who finds another at it waits for the outcome, and then borrows.
	_, _ = st.cache.Prefetch(st.closing, []cache.Item[key]{{Key: k, Size: s.Bytes}}, st.fill)
	if err := st.cache.Wait(ctx, func(other key) bool { return other == k }); err != nil {
		return cache.Lease{}, false, err
	}
	l, ok = st.cache.Borrow(k)
	return l, ok, nil
}

// take waits for the caller's turn, which ends with a token put back.
func (s *torchStorage) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spilled is the inflated storage in a temporary file, made on first use. Its
// size and CRC have been checked: a part of a damaged storage is not to be
// trusted either.
func (s *torchStorage) spilled(ctx context.Context) (*os.File, error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer func() { s.turn <- struct{}{} }()
	if s.file != nil || s.bad != nil {
		return s.file, s.bad
	}
	f, err := tempFile()
	if err != nil {
		return nil, err
	}
	z := s.Open(&contextReader{ctx, s.shard.file})
	defer z.Close()
	if _, err := io.Copy(f, &contextStream{ctx, z}); err != nil {
		closeTemp(f)
		s.blame(err)
		return nil, err
	}
	s.file = f
	return f, nil
}

// prove inflates the storage to nowhere, and says whether it is sound.
func (s *torchStorage) prove(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { s.turn <- struct{}{} }()
	if s.file != nil || s.bad != nil {
		return s.bad
	}
	z := s.Open(&contextReader{ctx, s.shard.file})
	defer z.Close()
	_, err := io.Copy(io.Discard, &contextStream{ctx, z})
	s.blame(err)
	return err
}

// blame remembers an error of the bytes, in the caller's turn.
func (s *torchStorage) blame(err error) {
	if err != nil && lasting(err) {
		s.bad = err
	}
}

// close gives the temporary file back, if there is one. Nobody reads any more.
func (s *torchStorage) close() error {
	if s.file == nil {
		return nil
	}
	return closeTemp(s.file)
}

// source is where in the file bytes [off, off+n) of the storage come from.
func (s *torchStorage) source(off, n int64) (fileOff, fileN int64) {
	if s.Deflated {
		return s.Offset, s.Compressed
	}
	return s.Offset + off, n
}

// tempFile makes a file that ends with the process, whatever ends it, where the
// system allows to remove what is open.
func tempFile() (*os.File, error) {
	f, err := os.CreateTemp("", "nibble-inflated-")
	if err == nil {
		_ = os.Remove(f.Name()) // else closeTemp does
	}
	return f, err
}

func closeTemp(f *os.File) error {
	err := f.Close()
	_ = os.Remove(f.Name()) // gone already, where tempFile could
	return err
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

// inflated is the viewer of a blob: the whole storage at once.
type inflated struct{ s *torchStorage }

func (v inflated) window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error) {
	f, err := v.s.spilled(ctx)
	if err != nil {
		return nil, err
	}
	buf, err := grow(scratch, n)
	if err == nil {
		_, err = f.ReadAt(buf, off)
	}
	return buf, err
}

// fill inflates the storage into dst, which holds all of it.
func (v inflated) fill(ctx context.Context, dst []byte) error {
	if err := v.s.take(ctx); err != nil {
		return err
	}
	defer func() { v.s.turn <- struct{}{} }()
	z := v.s.Open(&contextReader{ctx, v.s.shard.file})
	defer z.Close()
	_, err := io.ReadFull(&contextStream{ctx, z}, dst)
	v.s.blame(err)
	return err
}

func (v inflated) source(off, n int64) (int64, int64) { return v.s.source(off, n) }
