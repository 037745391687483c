//go:build linux

package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// A sharded torch checkpoint gives what the single file gives.
func TestWildShardedTorch(t *testing.T) {
	dir := wild(t)
	ctx := context.Background()
	single := open(t, filepath.Join(dir, "joaopauloschuler__neural-api__tiny_gpt2.bin"), store.Config{})
	sharded := open(t, filepath.Join(dir, "sharded_tiny_gpt2_bin"), store.Config{})
	if single.Len() == 0 || single.Len() != sharded.Len() {
		t.Fatalf("%d and %d tensors", single.Len(), sharded.Len())
	}
	for h := range single.Tensors() {
		other, err := sharded.Tensor(h.Name())
		if err != nil {
			t.Error(err)
			continue
		}
		a, err := h.Acquire(ctx, tensor.Stored)
		if err != nil {
			t.Fatal(err)
		}
		b, err := other.Acquire(ctx, tensor.Stored)
		if err != nil {
			t.Fatal(err)
		}
		if a.DType() != b.DType() || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s differs", h.Name())
		}
		a.Release()
		b.Release()
	}
}

// A torch file of 2 GiB, nearly all of it a hole, opens in milliseconds
// without being read; one tensor of it touches its own pages.
func TestSparseTorchFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse.bin")
	const numel = 1 << 28 // of F32, 1 GiB each
	writeSparseZip(t, path, numel)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	st := open(t, path, store.Config{})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("Open allocated %d bytes", grown)
	}
	if took > time.Second {
		t.Errorf("Open took %v", took)
	}
	if st.Len() != 2 {
		t.Fatalf("%d tensors, want 2", st.Len())
	}
	h, err := st.Tensor("b")
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]float32, 1<<14)
	if err := store.ReadRows(context.Background(), h, rows, 1<<13, 1<<13+1); err != nil {
		t.Fatal(err)
	}
	views := st.Stats().Mapped == 1 && tensor.HostLittleEndian
	if views {
		l, err := h.Acquire(context.Background(), tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
	if m := testkit.Mappings(t, path); m.Rss > 3<<20 {
		t.Errorf("%d bytes of the mapping resident after one row", m.Rss)
	}
	if views && st.Stats().Views == 0 {
		t.Error("an aligned tensor of a torch file was not lent as a view")
	}
}

// writeSparseZip writes {"a": tensor, "b": tensor}, each its own storage of
// numel F32 in [2^14, numel/2^14] shape, as torch lays a zip out: stored, 64
// byte aligned, data left as holes.
func writeSparseZip(t *testing.T, path string, numel uint32) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var directory bytes.Buffer
	var off int64
	records := 0
	add := func(name string, data []byte, size int64) {
		le := binary.LittleEndian
		pad := (64 - (off+30+int64(len(name))+4)%64) % 64
		extra := append(le.AppendUint16([]byte("FB"), uint16(pad)), make([]byte, pad)...)
		crc := crc32.ChecksumIEEE(data)
		fields := le.AppendUint32(le.AppendUint32(le.AppendUint32(make([]byte, 8), crc), uint32(size)), uint32(size))
		local := append(append(le.AppendUint16(le.AppendUint16(append([]byte("PK\x03\x04\x00\x00"), fields...), uint16(len(name))), uint16(len(extra))), name...), extra...)
		central := le.AppendUint16(append([]byte("PK\x01\x02\x00\x00\x00\x00"), fields...), uint16(len(name)))
		central = append(le.AppendUint32(append(central, make([]byte, 12)...), uint32(off)), name...)
		directory.Write(central)
		if _, err := f.WriteAt(append(local, data...), off); err != nil {
			t.Fatal(err)
		}
		off += int64(len(local)) + size
		records++
	}
	const cols = 1 << 14
	pickle := []byte("\x80\x02}(")
	for _, name := range []string{"a", "b"} {
		pickle = append(pickle, "X\x01\x00\x00\x00"+name+"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"+name+"X\x03\x00\x00\x00cpuJ"...)
		pickle = append(binary.LittleEndian.AppendUint32(pickle, numel), "tQK\x00J"...)
		pickle = append(binary.LittleEndian.AppendUint32(pickle, numel/cols), 'J')
		pickle = append(binary.LittleEndian.AppendUint32(pickle, cols), "\x86J"...)
		pickle = append(binary.LittleEndian.AppendUint32(pickle, cols), "K\x01\x86\x89}tR"...)
	}
	pickle = append(pickle, "u."...)
	add("archive/data.pkl", pickle, int64(len(pickle)))
	add("archive/data/a", nil, int64(numel)*4)
	add("archive/data/b", nil, int64(numel)*4)
	add("archive/version", []byte("3\n"), 2)
	le := binary.LittleEndian
	end := le.AppendUint16(le.AppendUint16([]byte("PK\x05\x06\x00\x00\x00\x00"), uint16(records)), uint16(records))
	end = append(le.AppendUint32(le.AppendUint32(end, uint32(directory.Len())), uint32(off)), 0, 0)
	if _, err := f.WriteAt(append(directory.Bytes(), end...), off); err != nil {
		t.Fatal(err)
	}
}
