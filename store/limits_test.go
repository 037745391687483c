//go:build linux

package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nibble/bench/synth"
	"nibble/internal/testkit"
	"nibble/store"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// 3,000 shards open, read and close where a process may have 256 descriptors.
func TestManyShards(t *testing.T) {
	shards := 3000
	if testing.Short() {
		shards = 600
	}
	dir := t.TempDir()
	if err := synth.Shards(dir, shards, 2); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	for _, backend := range []string{"mmap", "pread"} {
		st := open(t, dir, store.Config{Backend: backend})
		n := 0
		for h := range st.Tensors() {
			if err := release(h.Acquire(context.Background(), tensor.F32)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 2*shards {
			t.Errorf("%s: %d tensors, want %d", backend, n, 2*shards)
		}
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		if len(fds) > 200 {
			t.Errorf("%s: %d descriptors open", backend, len(fds))
		}
	}
}

// 70,000 tensors of one file need one mapping, leases of all of them included.
func TestManyTensors(t *testing.T) {
	const n = 70_000
	ts := make([]safetensors.Tensor, n)
	for i := range ts {
		ts[i] = safetensors.Tensor{Name: fmt.Sprintf("t%d", i), DType: tensor.U8, Shape: tensor.Shape{4}}
	}
	l, err := safetensors.Encode(ts, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "many.safetensors")
	data := make([]byte, l.Size)
	copy(data, l.Header)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	st := open(t, path, store.Config{})
	var leases []store.Lease
	for h := range st.Tensors() {
		l, err := h.Acquire(context.Background(), tensor.Stored)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	if m := testkit.Mappings(t, path); len(leases) != n || m.Count != 1 {
		t.Errorf("%d leases and %d mappings, want %d and one", len(leases), m.Count, n)
	}
	for _, l := range leases {
		l.Release()
	}
}

// An 8 GiB file that is a hole opens without being read, and one tensor of it
// touches its own pages.
func TestSparseFile(t *testing.T) {
	ts := []safetensors.Tensor{
		{Name: "a", DType: tensor.F32, Shape: tensor.Shape{1 << 20, 1 << 10}}, // 4 GiB
		{Name: "b", DType: tensor.F32, Shape: tensor.Shape{1 << 20, 1 << 10}},
	}
	l, err := safetensors.Encode(ts, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sparse.safetensors")
	if err := os.WriteFile(path, l.Header, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, l.Size); err != nil {
		t.Skip(err)
	}
	st := open(t, path, store.Config{})
	h, err := st.Tensor("b")
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]float32, 2<<10)
	if err := store.ReadRows(context.Background(), h, rows, 1<<19, 1<<19+2); err != nil {
		t.Fatal(err)
	}
	if m := testkit.Mappings(t, path); m.Rss > 3<<20 {
		t.Errorf("%d bytes of the mapping resident after two rows", m.Rss)
	}
}

// A compressed archive may hold more storages than a process may have
// descriptors. Without room in the budget they share one temporary file.
func TestManyDeflatedStorages(t *testing.T) {
	const n = 400
	storages := map[string][]byte{}
	for i := range n {
		storages[fmt.Sprint(i, "*")] = leF32(float32(i))
	}
	path := torchFile(t, func(p *pickler) {
		for i := range n {
			p.str(fmt.Sprint("t", i))
			p.vector("FloatStorage", fmt.Sprint(i), 1)
		}
	}, storages, "")
	st := open(t, path, store.Config{CacheBudget: store.NoCache})
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for i := range n {
		got := make([]float32, 1)
		if err := store.ReadRows(context.Background(), find(t, st, fmt.Sprint("t", i)), got, 0, 1); err != nil || got[0] != float32(i) {
			t.Fatalf("t%d = %v, %v", i, got, err)
		}
	}
	after, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if len(after) > len(before)+1 {
		t.Errorf("%d descriptors, %d before", len(after), len(before))
	}
}
