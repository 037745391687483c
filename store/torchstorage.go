package store

import (
	"context"
	"io"

	"nibble/cache"
	"nibble/store/pytorch"
	"nibble/tensor"
)

// torchStorage is a run of bytes in a torch file that tensors view.
type torchStorage struct {
	pytorch.Storage
	shard *shard

	// For a deflated storage:
	blob   *Tensor       // stands for the inflated bytes in the cache
	turn   chan struct{} // holds a token while nobody inflates
	cursor cursor        // of whoever has the token
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

// mapped reports whether windows of the storage cost no memory.
func (s *torchStorage) mapped() bool { return !s.Deflated && s.shard.file.Mapped() }

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
	// No room in the budget: inflate up to here and let the rest go by.
	return buf, s.inflate(ctx, buf, off)
}

// borrow pins the inflated storage in the cache. It inflates it first if the
// budget has room for it at once, and never waits for the budget: the caller
// holds bytes of it.
func (s *torchStorage) borrow(ctx context.Context) (l cache.Lease, ok bool, err error) {
	st, k := s.blob.st, key{t: s.blob, raw: true}
	if l, ok := st.cache.Borrow(k); ok {
		return l, true, nil
	}
	// Who finds another at it waits for the outcome, and then borrows.
	_, _ = st.cache.Prefetch(st.closing, []cache.Item[key]{{Key: k, Size: s.Bytes}}, st.fill)
	if err := st.cache.Wait(ctx, func(other key) bool { return other == k }); err != nil {
		return cache.Lease{}, false, err
	}
	l, ok = st.cache.Borrow(k)
	return l, ok, nil
}

// inflate reads bytes at off, in the caller's turn.
func (s *torchStorage) inflate(ctx context.Context, dst []byte, off int64) error {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()
	return s.cursor.read(ctx, s, dst, off)
}

// source is where in the file bytes [off, off+n) of the storage come from.
func (s *torchStorage) source(off, n int64) (fileOff, fileN int64) {
	if s.Deflated {
		return s.Offset, s.Compressed
	}
	return s.Offset + off, n
}

// cursor is a place in a deflated storage. Reading on from there costs what is
// read; going back means to begin again.
type cursor struct {
	z    *pytorch.Inflater
	file *contextReader
	pos  int64
	skip []byte
}

// read reads len(dst) bytes at off.
func (c *cursor) read(ctx context.Context, s *torchStorage, dst []byte, off int64) (err error) {
	if c.z == nil || off < c.pos {
		c.close()
		c.file = &contextReader{r: s.shard.file}
		c.z = s.Open(c.file)
	}
	c.file.ctx = ctx
	defer func() {
		if err != nil || c.pos == s.Bytes {
			c.close()
		}
	}()
	for c.pos < off {
		if c.skip == nil {
			c.skip = make([]byte, 64<<10)
		}
		if err := c.next(ctx, c.skip[:min(int64(len(c.skip)), off-c.pos)]); err != nil {
			return err
		}
	}
	for len(dst) > 0 {
		n := min(len(dst), 1<<20)
		if err := c.next(ctx, dst[:n]); err != nil {
			return err
		}
		dst = dst[n:]
	}
	return nil
}

func (c *cursor) next(ctx context.Context, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := io.ReadFull(c.z, dst)
	c.pos += int64(n)
	return err
}

func (c *cursor) close() {
	if c.z != nil {
		c.z.Close()
	}
	*c = cursor{}
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

// inflated is the viewer of a blob: it reads the storage from front to back.
type inflated struct{ s *torchStorage }

func (v inflated) window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error) {
	buf, err := grow(scratch, n)
	if err != nil {
		return nil, err
	}
	return buf, v.s.inflate(ctx, buf, off)
}

func (v inflated) source(off, n int64) (int64, int64) { return v.s.source(off, n) }
func (v inflated) serial() bool                       { return true }
