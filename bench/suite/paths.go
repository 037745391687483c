package suite

import (
	"context"

	"nibble/bench/measure"
	"nibble/store"
	"nibble/tensor"
)

const fromFile = "from a file"

// sections measure the whole way from a file to a lease, each size against what
// memory allows.
func (f *files) sections(ctx context.Context, m *memory) ([]*section, error) {
	var all []*section
	for _, size := range loneBytes {
		s := &section{title: fromFile}
		for _, workers := range workerCounts() {
			if workers == 1 || size >= splitBytes {
				s.bounds(ctx, m.twice(size, workers), []int{4}, []int{tensor.BF16.Size()})
			}
		}
		if err := f.lone(ctx, s, size); err != nil {
			return nil, err
		}
		for _, b := range batches {
			if b.tensors*b.bytes != size {
				continue
			}
			if err := f.batch(ctx, s, int(b.tensors), b.bytes); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// path adds a row about a store.
func (s *section) path(r Row, l measure.Loop) { s.compare(r, l, 4, tensor.BF16.Size()) }

// lone adds rows about single tensors of size bytes.
func (f *files) lone(ctx context.Context, s *section, size int64) error {
	for _, workers := range workerCounts() {
		st, err := f.open(ctx, lone(size), size, workers)
		if err != nil {
			return err
		}
		var ts []*store.Tensor
		for layer := range 2 {
			w, err := weights(st, layer, 1)
			if err != nil {
				return err
			}
			ts = append(ts, w...)
		}
		s.path(pathRow(Acquire, size, 1, workers), pathLoop(size, workers, acquire(ctx, ts)))
	}
	return f.pieces(ctx, s, size)
}

// pieces adds rows about a hit, and about tensors that are read in pieces. They
// have a store of their own: a tile's buffer would take the place of the memory
// that the others reuse.
func (f *files) pieces(ctx context.Context, s *section, size int64) error {
	if size != rangeBytes && size != largeBytes {
		return nil
	}
	st, err := f.open(ctx, lone(size), size, 1)
	if err != nil {
		return err
	}
	ts, err := weights(st, 0, 1)
	if err != nil {
		return err
	}
	if size == largeBytes {
		s.path(pathRow(Tiles, size, 1, 1), pathLoop(size, 1, tiles(ctx, ts[0])))
		return nil
	}
	s.path(pathRow(ReadRows, size, 1, 1), pathLoop(size, 1, readRows(ctx, ts[0])))
	s.add(pathRow(Hit, 0, 1, 1), pathLoop(0, 1, acquire(ctx, ts)), references{none, none, none})
	return nil
}

// acquire acquires and releases one of ts after the other.
func acquire(ctx context.Context, ts []*store.Tensor) func(n int) error {
	next := 0
	return func(n int) error {
		for range n {
			l, err := ts[next%len(ts)].Acquire(ctx, tensor.BF16)
			if err != nil {
				return err
			}
			l.Release()
			next++
		}
		return nil
	}
}

// tiles lets all of t go by.
func tiles(ctx context.Context, t *store.Tensor) func(n int) error {
	return func(n int) error {
		for range n {
			for _, err := range t.Tiles(ctx, tensor.BF16, rangeBytes) {
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// readRows reads all rows of t, of rangeBytes.
func readRows(ctx context.Context, t *store.Tensor) func(n int) error {
	dst := make([]tensor.BFloat16, rangeBytes/tensor.BF16.Size())
	return func(n int) error {
		for range n {
			if err := store.ReadRows(ctx, t, dst, 0, int64(len(dst)/cols)); err != nil {
				return err
			}
		}
		return nil
	}
}

// batch adds rows about layers of n tensors of size bytes each.
func (f *files) batch(ctx context.Context, s *section, n int, size int64) error {
	total := int64(n) * size
	for _, workers := range workerCounts() {
		st, err := f.open(ctx, layers(size), total, workers)
		if err != nil {
			return err
		}
		var ts [2][]*store.Tensor
		for layer := range ts {
			if ts[layer], err = weights(st, layer, n); err != nil {
				return err
			}
		}
		next := 0
		s.path(pathRow(Batch, total, n, workers), pathLoop(total, workers, func(n int) error {
			for range n {
				leases, err := st.AcquireMany(ctx, ts[next%2], tensor.BF16)
				if err != nil {
					return err
				}
				leases.Release()
				next++
			}
			return nil
		}))
	}
	return nil
}
