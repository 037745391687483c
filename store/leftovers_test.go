//go:build linux

package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// Close leaves no descriptor and no mapping: of no file, and no memory of the
// cache. (TestMain looks for goroutines.)
func TestNothingIsLeft(t *testing.T) {
	if testkit.Emulated() {
		t.Skip("the maps are the emulator's")
	}
	ctx := context.Background()
	use := func() {
		for _, c := range readManifest().Cases {
			st, err := store.Open(ctx, filepath.Join(goldenDir, c.Path), store.WithConfig(store.Config{Prefetch: 1}))
			if err != nil {
				t.Fatal(err)
			}
			for h := range st.Tensors() {
				if err := release(h.Acquire(ctx, tensor.Stored)); err != nil {
					t.Error(err)
				}
			}
			for _, h := range readManifest().Hostile[:20] {
				_, _ = readAll(filepath.Join(goldenDir, h.Path))
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	use() // what the runtime sets up once
	fds, maps := descriptors(t), mappings(t)
	for range 3 {
		use()
	}
	if n := descriptors(t); n != fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	// The Go heap may have grown by a mapping or two meanwhile.
	if n := mappings(t); n > maps+8 {
		t.Errorf("%d mappings, %d before", n, maps)
	}
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "/golden/") {
			t.Errorf("still mapped: %s", line)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(fds)
}

func mappings(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	return strings.Count(string(data), "\n")
}
