package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nibble/store"
	"nibble/tensor"
)

// A block may claim to be of any size. One larger than the tensor was counted
// in ranges whose size overflowed: nothing was decoded, and no error told.
func TestHugeBlockSize(t *testing.T) {
	for _, shift := range []int{40, 54, 55, 56, 60, 62} {
		path := torchFile(t, func(p *pickler) {
			p.str("w")
			p.tensor("ByteStorage", "0", 4096, 0, []int64{64, 64}, []int64{64, 1})
			p.str("w.quant_state")
			p.WriteByte('(')
			p.vector("FloatStorage", "1", 1)
			p.vector("FloatStorage", "2", 256)
			p.int(1 << shift)
			p.WriteByte(0x89)
			p.global("torch", "float32")
			p.WriteString("NNl")
		}, map[string][]byte{"0": bytes.Repeat([]byte{255}, 4096), "1": leF32(3), "2": ones()}, "")
		st := open(t, path, store.Config{})
		h, err := st.Tensor("w")
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]float32, 4096)
		if err := store.ReadRows(context.Background(), h, dst, 0, 64); err != nil {
			t.Fatal(err)
		}
		for i, v := range dst {
			if v != 3 {
				t.Fatalf("blocksize 2^%d: element %d is %v, want 3", shift, i, v)
			}
		}
	}
}

// A view with stride 0 may claim any size for a few bytes. It is read while
// that is believable, and refused, not allocated and not overflowed, beyond.
func TestRepeatingViews(t *testing.T) {
	ctx := context.Background()
	path := torchFile(t, func(p *pickler) {
		p.str("row")
		p.tensor("FloatStorage", "1", 2, 0, []int64{3, 2}, []int64{0, 1})
		p.str("huge")
		p.tensor("HalfStorage", "0", 1, 0, []int64{1 << 58}, []int64{0})
		p.str("large")
		p.tensor("HalfStorage", "0", 1, 0, []int64{1 << 30}, []int64{0})
		p.str("optimizer")
		p.dict(func() {
			p.str("state1")
			p.tensor("ByteStorage", "0", 2, 0, []int64{1 << 29}, []int64{0})
			p.str("absmax1")
			p.tensor("FloatStorage", "1", 2, 0, []int64{1 << 21}, []int64{0})
			p.str("qmap1")
			p.vector("FloatStorage", "2", 256)
		})
	}, map[string][]byte{"0": {0, 0x3c}, "1": leF32(1, 2), "2": ones()}, "")
	st := open(t, path, store.Config{})
	row, err := st.Tensor("row")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 6)
	if err := store.ReadRows(ctx, row, got, 0, 3); err != nil || got[4] != 1 || got[5] != 2 {
		t.Errorf("row = %v, %v", got, err)
	}
	for _, name := range []string{"huge", "large"} {
		h, err := st.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"Acquire": release(h.Acquire(ctx, tensor.F32)),
			"Raw":     release(h.Raw(ctx)),
			"Tiles":   firstError(h.Tiles(ctx, tensor.F32, 0)),
		} {
			if !errors.Is(err, store.ErrLimit) {
				t.Errorf("%s of %s: %v, want ErrLimit", what, name, err)
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := store.Verify(ctx, path)
	runtime.ReadMemStats(&after)
	if err != nil || after.TotalAlloc-before.TotalAlloc > 4<<20 {
		t.Errorf("Verify: %v after %d bytes", err, after.TotalAlloc-before.TotalAlloc)
	}
	if !hasFinding(found, "PT-006", store.Broken) || !hasFinding(found, "BNB-102", store.Broken) {
		t.Errorf("findings %+v", found)
	}
}

func firstError(tiles func(func(store.Tile, error) bool)) error {
	for _, err := range tiles {
		return err
	}
	return nil
}

// A state that was packed and then nested in a dict of its own is JSON in a
// tensor.
func TestNestedPackedState(t *testing.T) {
	state := `{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [8, 8]}`
	path := torchFile(t, func(p *pickler) {
		p.str("weight")
		p.tensor("ByteStorage", "0", 32, 0, []int64{32, 1}, []int64{1, 1})
		p.str("quant_state")
		p.dict(func() {
			p.str("absmax")
			p.vector("FloatStorage", "1", 1)
			p.str("quant_map")
			p.vector("FloatStorage", "2", 16)
			p.str("quant_state.bitsandbytes__nf4")
			p.vector("ByteStorage", "3", int64(len(state)))
		})
	}, map[string][]byte{"0": bytes.Repeat([]byte{0xff}, 32), "1": leF32(3), "2": make([]byte, 64), "3": []byte(state)}, "")
	st := open(t, path, store.Config{})
	h, err := st.Tensor("weight")
	if err != nil {
		t.Fatal(err)
	}
	l, err := h.Acquire(context.Background(), tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if v := l.Float32s(); len(v) != 64 || v[0] != 3 || v[63] != 3 {
		t.Errorf("values %v, want 64 times code 15 of the table, 1, times 3", v)
	}
}

// Statistics that are gathered from a mapping are read under the guard: a file
// that shrank is an error.
func TestTruncatedStateOfObjects(t *testing.T) {
	needFaults(t)
	const pad = 1 << 20
	path := torchFile(t, func(p *pickler) {
		p.str("w")
		p.tensor("ByteStorage", "0", 32, 0, []int64{32, 1}, []int64{1, 1})
		p.str("w.quant_state")
		p.WriteByte('(')
		p.vector("ByteStorage", "1", 1)
		p.ints(8, 8)
		p.global("torch", "float16")
		p.int(64)
		p.WriteByte('(')
		p.tensor("FloatStorage", "5", pad, pad-1, nil, nil)
		p.WriteByte('(')
		p.vector("FloatStorage", "3", 1)
		p.vector("FloatStorage", "4", 256)
		p.WriteString("ll")
		p.str("nf4")
		p.vector("FloatStorage", "2", 16)
		p.WriteByte('l')
	}, map[string][]byte{"0": make([]byte, 32), "1": {1}, "2": make([]byte, 64), "3": leF32(1), "4": ones(), "5": make([]byte, 4*pad)}, "big")
	st := open(t, path, store.Config{})
	h, err := st.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Info(context.Background()); !errors.Is(err, store.ErrTruncated) {
		t.Errorf("Info: %v, want ErrTruncated", err)
	}
}

// A deflated tensor is inflated once by whoever reads it from front to back,
// whether the budget has room for the whole of it or not; reading stops with
// its context.
func TestInflateOnce(t *testing.T) {
	ctx := context.Background()
	n := int64(64 << 20)
	if testing.Short() {
		n = 16 << 20
	}
	data := make([]byte, n)
	data[n-1] = 7
	path := torchFile(t, func(p *pickler) {
		p.str("w")
		p.vector("ByteStorage", "0", n)
	}, map[string][]byte{"0*": data}, "")
	for _, budget := range []int64{1 << 30, 8 << 20, store.NoCache} {
		st := open(t, path, store.Config{CacheBudget: budget})
		h, err := st.Tensor("w")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var last byte
		for tile, err := range h.Tiles(ctx, tensor.Stored, 0) {
			if err != nil {
				t.Fatal(err)
			}
			last = tile.Data[len(tile.Data)-1]
		}
		// Beginning again for each tile would inflate 2 GiB, or with the
		// smallest tiles a thousand times that.
		if took := time.Since(start); last != 7 || took > 20*time.Second {
			t.Errorf("budget %d: last byte %d after %v", budget, last, took)
		}
		if s := st.Stats(); s.Hits != 0 || s.Misses != 0 || s.Peak > max(budget, 0) {
			t.Errorf("budget %d: %d hits, %d misses, peak %d without any lease", budget, s.Hits, s.Misses, s.Peak)
		}
	}
	st := open(t, path, store.Config{CacheBudget: store.NoCache})
	h, err := st.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	// On the way to the last byte the context is looked at every 32 KiB.
	half := &fading{Context: ctx}
	half.looks.Store(n / (32 << 10) / 2)
	if err := store.ReadRows(half, h, make([]byte, 1), n-1, n); !errors.Is(err, context.Canceled) {
		t.Errorf("reading the last byte with a context that ends half-way: %v", err)
	}
}

// fading is a context that is done when it was looked at so many times: no
// clock decides whether a test of cancelling passes.
type fading struct {
	context.Context
	looks atomic.Int64
}

func (f *fading) Err() error {
	if f.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A view of a damaged deflated storage is refused, though the view itself does
// not reach the damage, nor the end where the CRC is compared.
func TestDamagedDeflated(t *testing.T) {
	data := make([]byte, 40_000)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	path := torchFile(t, func(p *pickler) {
		p.str("head")
		p.tensor("ByteStorage", "0", int64(len(data)), 0, []int64{100}, []int64{1})
		p.str("columns")
		p.tensor("ByteStorage", "0", int64(len(data)), 0, []int64{100, 2}, []int64{2, 1})
		p.str("sound")
		p.vector("FloatStorage", "1", 1)
	}, map[string][]byte{"0*": data, "1": leF32(5)}, "")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The CRC of the entry stands in the directory.
	at := bytes.LastIndex(file, []byte("a/data/0")) - 46
	file[at+16] ^= 1
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := store.Verify(context.Background(), path)
	if err != nil || len(found) != 1 || !hasFinding(found, "PT-001", store.Broken) {
		t.Errorf("findings %+v, %v", found, err)
	}
	for _, budget := range []int64{0, 1, store.NoCache} {
		st := open(t, path, store.Config{CacheBudget: budget})
		for h := range st.Tensors() {
			for range 2 {
				err := release(h.Acquire(context.Background(), tensor.Stored))
				var e *store.Error
				if bad := errors.As(err, &e) && e.Rule == "PT-001"; bad == (h.Name() == "sound") {
					t.Errorf("budget %d: %s: %v", budget, h.Name(), err)
				}
			}
		}
	}
}

// Many views of one deflated storage, in any order and without room for it,
// cost one inflation; so does one that is transposed.
func TestInflateWithoutRoom(t *testing.T) {
	ctx := context.Background()
	const n, views = 2048, 500
	path := torchFile(t, func(p *pickler) {
		for i := views - 1; i >= 0; i-- {
			p.str(fmt.Sprint("v", i))
			p.tensor("FloatStorage", "0", n*n, int64(i)*n, []int64{n}, []int64{1})
		}
		p.str("transposed")
		p.tensor("FloatStorage", "0", n*n, 0, []int64{n, n}, []int64{1, n})
	}, map[string][]byte{"0*": make([]byte, 4*n*n)}, "") // 16 MiB
	st := open(t, path, store.Config{CacheBudget: 4 << 20})
	start := time.Now()
	for h := range st.Tensors() {
		for _, err := range h.Tiles(ctx, tensor.Stored, 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// Once a view, or once a row, it would take minutes.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if s := st.Stats(); s.Peak > 4<<20 {
		t.Errorf("peak %d", s.Peak)
	}
}

// A transposed tensor that is not mapped goes by in chunks: memory does not
// grow with its storage.
func TestTransposedWithoutMapping(t *testing.T) {
	ctx := context.Background()
	const n = 2048 // squared: 4 MiB
	data := make([]byte, n*n)
	for i := range data {
		data[i] = byte(i ^ i>>11)
	}
	items := func(p *pickler) {
		p.str("w")
		p.tensor("ByteStorage", "0", n*n, 0, []int64{n, n}, []int64{1, n})
		p.str("column") // far apart: run by run
		p.tensor("ByteStorage", "0", n*n, 5, []int64{n / 2, 3}, []int64{2 * n, 7})
	}
	for what, path := range map[string]string{
		"stored":   torchFile(t, items, map[string][]byte{"0": data}, ""),
		"deflated": torchFile(t, items, map[string][]byte{"0*": data}, ""),
	} {
		for _, backend := range []string{"mmap", "pread"} {
			st := open(t, path, store.Config{CacheBudget: 1 << 20, Backend: backend})
			w, err := st.Tensor("w")
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			row := make([]byte, 2*n)
			if err := store.ReadRows(ctx, w, row, 5, 7); err != nil {
				t.Fatal(err)
			}
			for i := range row {
				if want := data[i%n*n+5+i/n]; row[i] != want {
					t.Fatalf("%s, %s: element %d of rows 5 and 6 is %d, want %d", what, backend, i, row[i], want)
				}
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 3<<20 {
				t.Errorf("%s, %s: two rows allocated %d bytes", what, backend, grown)
			}
			column, err := st.Tensor("column")
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n/2*3)
			if err := store.ReadRows(ctx, column, got, 0, n/2); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if want := data[5+i/3*2*n+i%3*7]; got[i] != want {
					t.Fatalf("%s, %s: element %d of the columns is %d, want %d", what, backend, i, got[i], want)
				}
			}
		}
	}
}

// A byte of a BOOL tensor may be anything. It is read as uint8: Go's bool may
// not be anything.
func TestBoolIsBytes(t *testing.T) {
	path := torchFile(t, func(p *pickler) {
		p.str("mask")
		p.vector("BoolStorage", "0", 4)
	}, map[string][]byte{"0": {0, 1, 200, 255}}, "")
	st := open(t, path, store.Config{})
	h, err := st.Tensor("mask")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]uint8, 4)
	if err := store.ReadRows(context.Background(), h, got, 0, 4); err != nil || got[2] != 200 {
		t.Errorf("ReadRows: %v, %v", got, err)
	}
	l, err := h.Acquire(context.Background(), tensor.Stored)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if l.DType() != tensor.Bool || len(store.Elements[uint8](l)) != 4 || store.Elements[int8](l) != nil {
		t.Errorf("a lease of %s with elements %v", l.DType(), store.Elements[uint8](l))
	}
}

// The name of a missing companion is the file's: it is quoted.
func TestNamesAreQuoted(t *testing.T) {
	path := torchFile(t, func(p *pickler) {
		p.str("w\x1b[2J")
		p.vector("ByteStorage", "0", 4)
		p.str("w\x1b[2J.absmax")
		p.vector("FloatStorage", "1", 1)
	}, map[string][]byte{"0": make([]byte, 4), "1": leF32(1)}, "")
	_, err := readAll(path)
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error %q", err)
	}
}

// Packed codes have no byte order, whatever dtype a big-endian host stored
// them under; their statistics do.
func TestPackedOnBigEndianHost(t *testing.T) {
	state := `{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [8, 8]}`
	codes := make([]byte, 32)
	for i := range codes {
		codes[i] = byte(i * 9)
	}
	weight := func(p *pickler, name, class, key string, numel int64) {
		p.str(name)
		p.tensor(class, key, numel, 0, []int64{numel, 1}, []int64{1, 1})
		p.str(name + ".absmax")
		p.vector("FloatStorage", "2", 1)
		p.str(name + ".quant_map")
		p.vector("FloatStorage", "3", 16)
		p.str(name + ".quant_state.bitsandbytes__nf4")
		p.vector("ByteStorage", "4", int64(len(state)))
	}
	path := torchFile(t, func(p *pickler) {
		weight(p, "bytes", "ByteStorage", "0", 32)
		weight(p, "words", "BFloat16Storage", "1", 16)
	}, map[string][]byte{"0": codes, "1": codes, "2": {0x40, 0x40, 0, 0}, "3": make([]byte, 64), "4": []byte(state)}, "big")
	st := open(t, path, store.Config{})
	var values [2][]float32
	for i, name := range []string{"bytes", "words"} {
		values[i] = make([]float32, 64)
		if err := store.ReadRows(context.Background(), find(t, st, name), values[i], 0, 8); err != nil {
			t.Fatal(err)
		}
	}
	p, err := find(t, st, "words").Packed(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Codes.Release()
	if !bytes.Equal(p.Codes.Bytes(), codes) {
		t.Errorf("packed codes % x, want % x", p.Codes.Bytes(), codes)
	}
	if !slices.Equal(values[0], values[1]) || values[0][0] != -3 { // code 0 is -1, absmax is 3
		t.Errorf("as bytes %v, as words %v", values[0], values[1])
	}
}
