package cache

import (
	"context"
	"fmt"

	"nibble/concurrency"
)

// Buffer is scratch memory that is charged to a cache's budget. It has one
// owner, who may write it; only Free may be called from several goroutines.
type Buffer struct {
	bytes []byte
	fresh bool
	block *block
	home  interface{ freeBuffer(*Buffer) }
}

// Buffer returns n bytes, aligned to 64 and holding anything. It waits for them
// as Acquire does, and like an output a buffer above the budget is let in when
// nothing else is charged, unless Options.Strict.
func (c *Cache[K]) Buffer(ctx context.Context, n int64) (*Buffer, error) {
	if n < 0 {
		panic(fmt.Sprintf("cache: buffer of %d bytes", n))
	}
	if err := concurrency.ContextErr(ctx); err != nil {
		return nil, err
	}
	r := &request[K]{scratch: n}
	if err := c.submit(ctx, r); err != nil {
		return nil, err
	}
	b := &Buffer{block: r.buffer, fresh: r.buffer.fresh(), home: c}
	err := concurrency.ContextErr(ctx)
	if err == nil {
		b.bytes, err = b.block.bytes()
	}
	if err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}

// Bytes returns the memory, valid until Free.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Fresh reports whether the pages have never been touched before this buffer,
// so that Populate helps.
func (b *Buffer) Fresh() bool { return b.fresh }

// Free gives the bytes back. Freeing again does nothing.
func (b *Buffer) Free() { b.home.freeBuffer(b) }

func (c *Cache[K]) freeBuffer(b *Buffer) {
	c.mu.Lock()
	defer c.unlock()
	if b.block == nil {
		return
	}
	c.ledger.scratch -= b.block.capacity
	c.free(b.block)
	b.block, b.bytes = nil, nil
	c.settle()
}
