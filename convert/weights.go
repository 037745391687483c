package convert

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// weights is a safetensors file to be written.
type weights struct {
	layout   *safetensors.Layout
	items    []*item // in the order of layout.Tensors
	progress *progress
}

func newWeights(items []*item, metadata map[string]string, pr *progress) (*weights, error) {
	list := make([]safetensors.Tensor, len(items))
	byName := make(map[string]*item, len(items))
	for i, it := range items {
		list[i] = safetensors.Tensor{Name: it.t.Name(), DType: it.dtype, Shape: it.info.Shape}
		byName[it.t.Name()] = it
	}
	layout, err := safetensors.Encode(list, metadata)
	if err != nil {
		return nil, err
	}
	w := &weights{layout: layout, progress: pr}
	for i := range layout.Tensors {
		w.items = append(w.items, byName[layout.Tensors[i].Name])
	}
	return w, nil
}

// atOnce is how many tensors are under way: one decodes, on all workers of the
// store, while the other is written. A tile is at most a quarter of the
// budget, so that none of them waits for the other.
const atOnce = 2

func (w *weights) writeTo(ctx context.Context, f *os.File) error {
	if _, err := f.Write(w.layout.Header); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, it := range w.items {
		if ctx.Err() != nil {
			break // Wait has the error, or the caller's context
		}
		at := &w.layout.Tensors[i]
		g.Go(func() error { return w.tensor(ctx, it, io.NewOffsetWriter(f, at.Begin)) })
	}
	return g.Wait()
}

// tensor writes the elements of one tensor, little-endian.
func (w *weights) tensor(ctx context.Context, it *item, out io.Writer) error {
	written := int64(0)
	for tile, err := range it.t.Tiles(ctx, it.dtype, 0) {
		if err != nil {
			return err
		}
		tensor.LittleEndian(tile.Data, tile.Data, tile.DType.WordSize())
		if _, err := out.Write(tile.Data); err != nil {
			return err
		}
		written += int64(len(tile.Data))
		w.progress.add(int64(len(tile.Data)))
	}
	if written != it.bytes {
		return fmt.Errorf("%q: decoded to %d bytes, want %d", it.t.Name(), written, it.bytes)
	}
	return nil
}

// progress counts bytes for Options.Progress.
type progress struct {
	tell  func(done, total int64)
	total int64

	mu   sync.Mutex
	done int64
}

func (p *progress) add(n int64) {
	if p.tell == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.tell(p.done, p.total)
}
