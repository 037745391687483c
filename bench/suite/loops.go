package suite

import (
	"context"

	"nibble/bench/measure"
	"nibble/concurrency"
	"nibble/internal/floor"
	"nibble/quant"
	"nibble/tensor"
)

// loop makes a loop of work, which writes range i; they are numbered on from
// output to output.
func (t target) loop(ctx context.Context, work func(worker, i int)) measure.Loop {
	pool := concurrency.NewPool(t.workers)
	first := 0
	return measure.Loop{Threads: t.workers, Run: func(n int) error {
		begin := first
		first += n * t.ranges
		return pool.Run(ctx, n*t.ranges, t.workers, func(worker, i int) error {
			work(worker, begin+i)
			return nil
		})
	}}
}

func (t target) memset(ctx context.Context) measure.Loop {
	return t.loop(ctx, func(worker, i int) { floor.Set(t.dst(worker, i)) })
}

// ordinary copies a page that stays in the first-level cache: Go has no memset,
// and its clear streams where it likes.
func (t target) ordinary(ctx context.Context) measure.Loop {
	page := make([]byte, 4<<10)
	return t.loop(ctx, func(worker, i int) {
		for dst := t.dst(worker, i); len(dst) > 0; {
			dst = dst[copy(dst, page):]
		}
	})
}

// floor is the floor of decoders of codes of so many bits to elements of so many
// bytes. Of 8-bit codes there is one scale for 256 elements or more, which
// counts for nothing: those that the loop wants stay in the caches.
func (t target) floor(ctx context.Context, bits, size int) measure.Loop {
	codes := rangeBytes / size * bits / 8
	scales := codes / (floor.Block / 2) * 4
	sources := t.sources(size)
	return t.loop(ctx, func(worker, i int) {
		from := i % sources
		s := t.mem.scales[:scales]
		if bits == 4 {
			s = t.mem.scales[from*scales:][:scales]
		}
		floor.Decode(t.dst(worker, i), t.mem.codes[from*codes:][:codes], s)
	})
}

// decode is a decoder at work. Its parts are whole.
func (t target) decode(ctx context.Context, d quant.Decoder, parts [][]byte, dt tensor.DType) measure.Loop {
	n := int64(rangeBytes / dt.Size())
	windows := make([][][]byte, t.sources(dt.Size()))
	for i := range windows {
		lo := int64(i) * n
		for p, part := range parts {
			off, n := d.Span(p, lo, lo+n)
			windows[i] = append(windows[i], part[off:off+n])
		}
	}
	w := quant.Stream
	if t.cached {
		w = quant.Cached
	}
	return t.loop(ctx, func(worker, i int) {
		from := i % len(windows)
		lo := int64(from) * n
		d.Decode(t.dst(worker, i), dt, lo, lo+n, windows[from], w)
	})
}
