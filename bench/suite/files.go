package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"nibble/bench/measure"
	"nibble/bench/synth"
	"nibble/quant"
	"nibble/store"
	"nibble/tensor"
)

// splitBytes is the size of tensors, in bytes of output, below which the store
// leaves them to one worker.
const splitBytes = 8 << 20

// loneBytes are the sizes of tensors, decoded to bf16, that are acquired one by
// one.
var loneBytes = []int64{1 << 20, 8 << 20, 16 << 20, largeBytes}

// batches are the layers that are acquired at once. As a whole they are of one
// of loneBytes.
var batches = []struct{ tensors, bytes int64 }{{16, 1 << 20}, {8, 8 << 20}}

// files are checkpoints in a temporary folder, and the stores open on them.
type files struct {
	dir    string
	stores []*store.Store
}

const cols = 1024

func newFiles(ctx context.Context) (*files, error) {
	dir, err := os.MkdirTemp("", "nibble-bench-")
	if err != nil {
		return nil, err
	}
	f := &files{dir: dir}
	for _, size := range loneBytes {
		if err = f.write(ctx, lone(size), 2, 1, size); err != nil {
			break
		}
	}
	for _, b := range batches {
		if err == nil {
			err = f.write(ctx, layers(b.bytes), 2, int(b.tensors), b.bytes)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// lone and layers name checkpoints of tensors of a size.
func lone(size int64) string   { return fmt.Sprintf("lone-%d.safetensors", size) }
func layers(size int64) string { return fmt.Sprintf("layers-%d.safetensors", size) }

func (f *files) write(ctx context.Context, name string, layers, weights int, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return synth.Write(filepath.Join(f.dir, name), synth.Model{Layers: layers, Weights: weights, Rows: size / 2 / cols, Cols: cols})
}

// remove closes the stores and removes the files.
func (f *files) remove() error {
	var errs []error
	for _, st := range f.stores {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// open opens a checkpoint with room for one of its two layers of n bytes, so that
// acquiring them in turns never finds one cached, not even in part, and always
// finds memory to reuse.
func (f *files) open(ctx context.Context, name string, n int64, workers int) (*store.Store, error) {
	st, err := store.Open(ctx, filepath.Join(f.dir, name), store.WithConfig(store.Config{
		Workers: workers, CacheBudget: n, Kernels: quant.Active(),
	}))
	if err == nil {
		f.stores = append(f.stores, st)
	}
	return st, err
}

// weights are the quantized tensors of a layer.
func weights(st *store.Store, layer, n int) ([]*store.Tensor, error) {
	ts := make([]*store.Tensor, n)
	for i := range ts {
		var err error
		if ts[i], err = st.Tensor(fmt.Sprintf("model.layers.%d.w%d.weight", layer, i)); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// workerCounts are one, and all if that is more.
func workerCounts() []int {
	if all := runtime.GOMAXPROCS(0); all > 1 {
		return []int{1, all}
	}
	return []int{1}
}

// pathRow is a row about n bytes from a file, in so many tensors.
func pathRow(name string, n int64, tensors, workers int) Row {
	return Row{Name: name, Tensors: tensors, Kernels: quant.Active(), Scheme: "nf4", Out: tensor.BF16.String(), SizeBytes: n, Workers: workers}
}

// pathLoop is a loop of a store's workers, who wait for each other.
func pathLoop(n int64, workers int, run func(n int) error) measure.Loop {
	if n < splitBytes {
		workers = 1
	}
	return measure.Loop{Threads: workers, Waits: workers > 1, Run: run}
}
