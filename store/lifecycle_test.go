package store_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const modelFile = goldenDir + "/model_single/model.safetensors"

// needFaults skips tests of faults where the emulator reports their addresses
// with halves swapped, so that no fault can be told from a bug.
func needFaults(t *testing.T) {
	t.Helper()
	if testkit.Emulated() && runtime.GOARCH == "s390x" {
		t.Skip("no usable fault addresses under emulation")
	}
}

// copyOf copies a file to where it may be damaged.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// plainAndQuantized finds one tensor of each kind.
func plainAndQuantized(t *testing.T, st *store.Store) (plain, quantized *store.Tensor) {
	t.Helper()
	for h := range st.Tensors() {
		info, err := h.Info(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case info.Scheme == store.SchemePlain && plain == nil:
			plain = h
		case info.Scheme != store.SchemePlain && quantized == nil:
			quantized = h
		}
	}
	return plain, quantized
}

// Close names the leases that are open; they stay valid, and the last Release
// unmaps.
func TestCloseWithLeases(t *testing.T) {
	path := copyOf(t, modelFile)
	ctx := context.Background()
	st, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	plain, quantized := plainAndQuantized(t, st)
	view, err := plain.Acquire(ctx, tensor.Stored)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := quantized.Acquire(ctx, tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	before := [2][]byte{bytes.Clone(view.Bytes()), bytes.Clone(decoded.Bytes())}

	err = st.Close()
	if !errors.Is(err, store.ErrLeased) || !strings.Contains(err.Error(), plain.Name()) || !strings.Contains(err.Error(), quantized.Name()) {
		t.Errorf("Close: %v, want ErrLeased with both names", err)
	}
	if err := st.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if !bytes.Equal(view.Bytes(), before[0]) || !bytes.Equal(decoded.Bytes(), before[1]) {
		t.Error("leases changed at Close")
	}
	if !view.Release() || view.Release() || !decoded.Release() || decoded.Release() {
		t.Error("Release must report the end of the lease once")
	}
	if view.Bytes() != nil || decoded.Bytes() != nil {
		t.Error("bytes of a released lease")
	}
	if n := testkit.Mappings(t, path).Count; n != 0 {
		t.Errorf("%d mappings left", n)
	}
}

// A closed store refuses every kind of work.
func TestClosed(t *testing.T) {
	ctx := context.Background()
	st, err := store.Open(ctx, modelFile)
	if err != nil {
		t.Fatal(err)
	}
	plain, quantized := plainAndQuantized(t, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*store.Tensor{plain, quantized} {
		for what, f := range map[string]func() error{
			"Acquire":     func() error { _, err := h.Acquire(ctx, tensor.Stored); return err },
			"Raw":         func() error { _, err := h.Raw(ctx); return err },
			"Info":        func() error { _, err := h.Info(ctx); return err },
			"Read":        func() error { return h.Read(ctx, nil, tensor.F32, 0, 0) },
			"AcquireMany": func() error { _, err := st.AcquireMany(ctx, []*store.Tensor{h}, tensor.F32); return err },
			"Tiles": func() error {
				for _, err := range h.Tiles(ctx, tensor.F32, 0) {
					return err
				}
				return nil
			},
			"Layers": func() error {
				for _, err := range st.Layers(ctx) {
					return err
				}
				return nil
			},
		} {
			if err := f(); !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s of %s: %v, want ErrClosed", what, h.Name(), err)
			}
		}
	}
}

// Close does not wait for requests that wait for leases of whoever closes, nor
// for a loop over tiles that it is called from.
func TestCloseDoesNotWaitForItself(t *testing.T) {
	ctx := context.Background()
	for _, shared := range []bool{false, true} {
		cfg := store.Config{CacheBudget: 50 << 10}
		var opts []store.Option
		if shared {
			c, err := store.NewCache(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			opts = append(opts, store.WithCache(c))
		}
		st, err := store.Open(ctx, modelFile, append(opts, store.WithConfig(cfg))...)
		if err != nil {
			t.Fatal(err)
		}
		held, err := find(t, st, "model.layers.0.mlp.up_proj.weight").Acquire(ctx, tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 2)
		go func() {
			waits <- release(find(t, st, "model.layers.1.mlp.up_proj.weight").Acquire(ctx, tensor.F32))
		}()
		go func() {
			waits <- firstError(find(t, st, "model.layers.2.mlp.up_proj.weight").Tiles(ctx, tensor.F32, 40<<10))
		}()
		for st.Stats().Waiting < 1 {
			time.Sleep(time.Millisecond)
		}
		if err := st.Close(); !errors.Is(err, store.ErrLeased) {
			t.Errorf("Close: %v, want ErrLeased", err)
		}
		for range 2 {
			if err := <-waits; err != nil && !errors.Is(err, store.ErrClosed) {
				t.Errorf("a waiting request: %v, want ErrClosed", err)
			}
		}
		if _, err := find(t, st, "model.layers.0.mlp.up_proj.weight").Acquire(ctx, tensor.F32); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a hit after Close: %v, want ErrClosed", err)
		}
		held.Release()
	}

	st, err := store.Open(ctx, modelFile)
	if err != nil {
		t.Fatal(err)
	}
	tiles := 0
	for _, err := range find(t, st, "lm_head.weight").Tiles(ctx, tensor.F32, 4<<10) {
		if tiles++; tiles == 1 {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, store.ErrClosed) {
			t.Errorf("tile %d after Close: %v", tiles, err)
		}
	}
	if tiles != 2 {
		t.Errorf("%d tiles, want one and the error", tiles)
	}
}

func find(t *testing.T, st *store.Store, name string) *store.Tensor {
	h, err := st.Tensor(name)
	if err != nil {
		t.Error(err)
	}
	return h
}

// Handles of one store are not another's to acquire.
func TestHandleOfAnotherStore(t *testing.T) {
	a, b := open(t, modelFile, store.Config{}), open(t, modelFile, store.Config{})
	if _, err := a.AcquireMany(context.Background(), []*store.Tensor{find(t, b, "lm_head.weight")}, tensor.F32); err == nil {
		t.Error("acquired through the wrong store")
	}
}

// A done context is always its error, and is not remembered.
func TestDoneContext(t *testing.T) {
	st := open(t, modelFile, store.Config{})
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := store.Open(done, modelFile); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	for h := range st.Tensors() {
		if _, err := h.Acquire(done, tensor.F32); !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire of %s: %v", h.Name(), err)
		}
		if _, err := h.Raw(done); !errors.Is(err, context.Canceled) {
			t.Errorf("Raw of %s: %v", h.Name(), err)
		}
		l, err := h.Acquire(context.Background(), tensor.Stored)
		if err != nil {
			t.Fatalf("Acquire after a cancelled one: %v", err)
		}
		if _, err := h.Acquire(done, tensor.Stored); !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire of cached %s: %v", h.Name(), err)
		}
		l.Release()
	}
	for h := range st.Tensors() {
		if _, err := st.AcquireMany(done, []*store.Tensor{h}, tensor.Stored); !errors.Is(err, context.Canceled) {
			t.Errorf("AcquireMany of resolved %s: %v", h.Name(), err)
		}
		if _, err := h.Info(done); !errors.Is(err, context.Canceled) {
			t.Errorf("Info of resolved %s: %v", h.Name(), err)
		}
	}
	for layer, err := range st.Layers(done) {
		if layer != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("Layers: %v, %v", layer, err)
		}
	}
}

// A file that became shorter is ErrTruncated and a living process, for every
// path and backend, whether the cut is at a page or within the last one; and
// tensors before the cut stay readable.
func TestTruncatedWhileOpen(t *testing.T) {
	needFaults(t)
	ctx := context.Background()
	for _, backend := range []string{"mmap", "pread"} {
		for _, cut := range []int64{1, 100, 5000, 100_000} {
			path := copyOf(t, modelFile)
			st := open(t, path, store.Config{Backend: backend, Workers: 3})
			size := fileSize(t, path)
			if err := os.Truncate(path, size-cut); err != nil {
				t.Fatal(err)
			}
			whole, broken := 0, 0
			for h := range st.StoredTensors() {
				info, err := h.Info(ctx)
				if err != nil {
					t.Fatal(err)
				}
				gone := info.Offset+info.StoredBytes > size-cut && info.StoredBytes > 0
				if gone {
					broken++
				} else {
					whole++
				}
				for what, read := range map[string]func() error{
					"Raw":     func() error { return release(h.Raw(ctx)) },
					"Acquire": func() error { return release(h.Acquire(ctx, tensor.Stored)) },
					"Read": func() error {
						n := numel(info.Shape)
						return h.Read(ctx, make([]byte, n*int64(info.DType.Size())), info.DType, 0, n)
					},
					"Tiles": func() error {
						for _, err := range h.Tiles(ctx, tensor.Stored, 0) {
							if err != nil {
								return err
							}
						}
						return nil
					},
				} {
					err := read()
					if gone && !errors.Is(err, store.ErrTruncated) || !gone && err != nil {
						t.Errorf("%s, cut by %d, %s of %s: %v", backend, cut, what, h.Name(), err)
					}
				}
			}
			if whole == 0 || broken == 0 {
				t.Errorf("cut by %d: %d whole and %d broken tensors test nothing", cut, whole, broken)
			}
		}
	}
}

// A quantized tensor whose file shrank is not remembered as broken: once the
// file is whole again, so is the tensor.
func TestTruncationIsNotRemembered(t *testing.T) {
	needFaults(t)
	ctx := context.Background()
	path := copyOf(t, modelFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st := open(t, path, store.Config{})
	_, h := plainAndQuantized(t, st)
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	if err := release(h.Acquire(ctx, tensor.F32)); !errors.Is(err, store.ErrTruncated) {
		t.Errorf("Acquire of a truncated tensor: %v", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := release(h.Acquire(ctx, tensor.F32)); err != nil {
		t.Errorf("Acquire of the restored file: %v", err)
	}
}

// A view that is touched after the file shrank is an error under Do.
func TestLeaseDo(t *testing.T) {
	needFaults(t)
	ctx := context.Background()
	path := copyOf(t, modelFile)
	st := open(t, path, store.Config{})
	h, _ := plainAndQuantized(t, st)
	l, err := h.Acquire(ctx, tensor.Stored)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	touch := func(data []byte) error {
		var sum byte
		for _, b := range data {
			sum += b
		}
		_ = sum
		return nil
	}
	if err := l.Do(touch); err != nil {
		t.Errorf("Do on a whole file: %v", err)
	}
	mine := errors.New("mine")
	if err := l.Do(func([]byte) error { return mine }); err != mine {
		t.Errorf("Do gives %v, want the callback's own error", err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	// What f makes of a cut file explains itself: a system call refuses the
	// bytes, or they are zeros.
	if err := l.Do(func([]byte) error { return mine }); !errors.Is(err, store.ErrTruncated) || !errors.Is(err, mine) {
		t.Errorf("Do with an error of its own on a truncated file: %v", err)
	}
	if err := l.Do(touch); !errors.Is(err, store.ErrTruncated) {
		t.Errorf("Do on a truncated file: %v", err)
	}
	// A system call does not fault: it fails.
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var refused error
	write := func(data []byte) error { _, refused = out.Write(data); return refused }
	if err := l.Do(write); refused == nil || !errors.Is(err, store.ErrTruncated) || !errors.Is(err, refused) {
		t.Errorf("Do that writes from a truncated file: %v, of the call %v", err, refused)
	}
}

func release(l store.Lease, err error) error {
	if err == nil {
		l.Release()
	}
	return err
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Many goroutines acquire, read, cancel and change the budget at random, until
// the store is closed under them. All bytes are right, and the account is
// exact at rest.
func TestStress(t *testing.T) {
	want := map[string]string{}
	for _, c := range safetensorsCases() {
		if c.Path == "model_single/model.safetensors" {
			for _, g := range c.Tensors {
				want[g.Name] = g.SHA256["f32"]
			}
		}
	}
	for _, budget := range []int64{1, 1 << 14, 1 << 16, 1 << 30} {
		st, err := store.Open(context.Background(), modelFile, store.WithConfig(store.Config{CacheBudget: budget, Workers: 2, Prefetch: 1}))
		if err != nil {
			t.Fatal(err)
		}
		var handles []*store.Tensor
		for h := range st.Tensors() {
			handles = append(handles, h)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 7))
				for ctx.Err() == nil {
					stressStep(t, ctx, st, handles, want, rng)
				}
			})
		}
		wg.Wait()
		cancel()
		s := st.Stats()
		for deadline := time.Now().Add(5 * time.Second); s.InFlight != 0 && time.Now().Before(deadline); s = st.Stats() {
			time.Sleep(time.Millisecond) // decodes that everybody has left run to their end
		}
		if s.Leased != 0 || s.InFlight != 0 || s.Scratch != 0 || s.Waiting != 0 || s.Used != s.Idle+s.ArenaFree {
			t.Errorf("budget %d, at rest: %+v", budget, s)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

func stressStep(t *testing.T, ctx context.Context, st *store.Store, handles []*store.Tensor, want map[string]string, rng *rand.Rand) {
	h := handles[rng.IntN(len(handles))]
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
	defer cancel()
	check := func(l store.Lease, err error) {
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrBudget) {
				t.Error(err)
			}
			return
		}
		if got := sum(l.Bytes(), tensor.F32, false); l.DType() == tensor.F32 && got != want[l.Tensor().Name()] {
			t.Errorf("%s: sha256 %s, want %s", l.Tensor().Name(), got, want[l.Tensor().Name()])
		}
		l.Release()
	}
	switch rng.IntN(6) {
	case 0, 1:
		check(h.Acquire(ctx, tensor.F32))
	case 2:
		n := rng.IntN(len(handles) - 3)
		leases, err := st.AcquireMany(ctx, handles[n:n+3], tensor.F32)
		if err != nil {
			check(store.Lease{}, err)
			return
		}
		for _, l := range leases {
			check(l, nil)
		}
	case 3:
		for tile, err := range h.Tiles(ctx, tensor.F32, 1000) {
			if err != nil {
				check(store.Lease{}, err)
			}
			_ = tile
			break
		}
	case 4:
		for layer, err := range st.Layers(ctx) {
			if err != nil {
				check(store.Lease{}, err)
				break
			}
			leases, err := layer.Acquire(ctx, tensor.F32)
			if err != nil {
				check(store.Lease{}, err)
				break
			}
			leases.Release()
		}
	case 5:
		if rng.IntN(10) == 0 {
			st.SetBudget(int64(1) << (10 + rng.IntN(12)))
		}
		_ = st.Stats()
	}
}

// With full: fail, what would have to wait is an error at once.
func TestFullFails(t *testing.T) {
	ctx := context.Background()
	st := open(t, modelFile, store.Config{CacheBudget: 50 << 10, Full: "fail"})
	held, err := find(t, st, "model.layers.0.mlp.up_proj.weight").Acquire(ctx, tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if _, err := find(t, st, "model.layers.1.mlp.up_proj.weight").Acquire(ctx, tensor.F32); !errors.Is(err, store.ErrBudget) {
		t.Errorf("error %v, want ErrBudget", err)
	}
	strict := open(t, modelFile, store.Config{CacheBudget: 10 << 10, Strict: true})
	if _, err := find(t, strict, "model.layers.1.mlp.up_proj.weight").Acquire(ctx, tensor.F32); !errors.Is(err, store.ErrBudget) {
		t.Errorf("larger than a strict budget: %v, want ErrBudget", err)
	}
}

// gate is a reader that waits at a place until it is opened.
type gate struct {
	data []byte
	at   int64
	open chan struct{}
	met  chan struct{}
	once sync.Once
}

func (g *gate) ReadAt(p []byte, off int64) (int, error) {
	if off >= g.at {
		g.once.Do(func() { close(g.met) })
		<-g.open
	}
	return bytes.NewReader(g.data).ReadAt(p, off)
}

// Who waits for another goroutine to read a quantization state waits no longer
// than its context.
func TestResolveWaitsWithItsContext(t *testing.T) {
	data, err := os.ReadFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	sound := open(t, modelFile, store.Config{})
	_, quantized := plainAndQuantized(t, sound)
	g := &gate{data: data, at: int64(len(data)), open: make(chan struct{}), met: make(chan struct{})}
	st, err := store.OpenReaderAt(context.Background(), "gated", g, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	g.at = 0 // from now on
	h := find(t, st, quantized.Name())
	first := make(chan error)
	go func() { _, err := h.Info(context.Background()); first <- err }()
	<-g.met
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := h.Info(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one who waits: %v", err)
	}
	close(g.open)
	if err := <-first; err != nil {
		t.Errorf("the one who reads: %v", err)
	}
}

// A reader may be slow every time, so that nobody but a goroutine of its own
// waits for it, however small the tensor.
func TestAcquireFromReaderWaitsWithItsContext(t *testing.T) {
	data, err := os.ReadFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{data: data, at: int64(len(data)), open: make(chan struct{}), met: make(chan struct{})}
	st, err := store.OpenReaderAt(context.Background(), "gated", g, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	defer close(g.open)
	h := find(t, st, "model.layers.0.mlp.up_proj.weight")
	if err := release(h.Acquire(context.Background(), tensor.BF16)); err != nil {
		t.Fatal(err)
	}
	g.at = 0 // from now on
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	second := make(chan error, 1)
	go func() { second <- release(h.Acquire(soon, tensor.F32)) }()
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Acquire waits for the reader")
	}
}
