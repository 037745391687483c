package convert_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"nibble/convert"
	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// Interrupted after any piece, a conversion leaves nothing, and what it was to
// replace as it was.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	run(t, open(t, single, store.Config{}), old, convert.Options{DType: tensor.F16, MaxShardSize: 20000})
	before := tree(t, dir)
	st := open(t, single, store.Config{CacheBudget: 1})
	for _, out := range []string{"old", "new", "deep/er/new", "new.safetensors"} {
		for stop := 1; stop < 39; stop += 3 { // 39 tensors, so at least as many pieces
			ctx, cancel := context.WithCancel(context.Background())
			pieces := 0
			_, err := convert.Run(ctx, st, filepath.Join(dir, out), convert.Options{
				Force: true,
				Progress: func(int64, int64) {
					if pieces++; pieces == stop {
						cancel()
					}
				},
			})
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s stopped after piece %d: error %v", out, stop, err)
			}
			if after := tree(t, dir); !maps.Equal(before, after) {
				t.Fatalf("%s stopped after piece %d left %q", out, stop, slices.Sorted(maps.Keys(after)))
			}
		}
	}
}

// A context that is done beforehand writes nothing.
func TestDoneContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	_, err := convert.Run(ctx, open(t, single, store.Config{}), filepath.Join(dir, "a/b"), convert.Options{})
	if !errors.Is(err, context.Canceled) || len(tree(t, dir)) != 1 {
		t.Errorf("error %v, left %v", err, tree(t, dir))
	}
}

// Progress ends at the total, never goes back and never overlaps.
func TestProgress(t *testing.T) {
	var last, total int64
	r := run(t, open(t, single, store.Config{}), filepath.Join(t.TempDir(), "out"), convert.Options{
		Progress: func(done, all int64) {
			if done <= last || done > all {
				t.Errorf("%d of %d after %d", done, all, last)
			}
			last, total = done, all
		},
	})
	if last != total || total != r.Bytes {
		t.Errorf("ended at %d of %d, reported %d", last, total, r.Bytes)
	}
}

// The source is truncated while it is converted: an error, and nothing left.
func TestSourceTruncated(t *testing.T) {
	for _, backend := range []string{"mmap", "pread"} {
		if backend == "mmap" && runtime.GOARCH == "s390x" && testkit.Emulated() {
			continue // no usable fault addresses under emulation
		}
		dir := t.TempDir()
		in := filepath.Join(dir, "in.safetensors")
		data, err := os.ReadFile(single + "/model.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, in, string(data))
		st := open(t, in, store.Config{Backend: backend})
		cut := false
		_, err = convert.Run(t.Context(), st, filepath.Join(dir, "out"), convert.Options{
			Progress: func(int64, int64) {
				if !cut {
					cut = true
					if err := os.Truncate(in, int64(len(data)/2)); err != nil {
						t.Error(err)
					}
				}
			},
		})
		if !errors.Is(err, store.ErrTruncated) {
			t.Errorf("%s: error %v, want ErrTruncated", backend, err)
		}
		if names := slices.Sorted(maps.Keys(tree(t, dir))); !slices.Equal(names, []string{".", "in.safetensors"}) {
			t.Errorf("%s: left %q", backend, names)
		}
	}
}

// Converting twice gives the same bytes, whatever the number of workers and
// the size of pieces.
func TestDeterministic(t *testing.T) {
	var first map[string]string
	for _, cfg := range []store.Config{{Workers: 1}, {Workers: 5}, {CacheBudget: store.NoCache}, {Backend: "pread"}} {
		out := filepath.Join(t.TempDir(), "out")
		run(t, open(t, single, cfg), out, convert.Options{MaxShardSize: 30000})
		if first == nil {
			first = tree(t, out)
		} else if !maps.Equal(first, tree(t, out)) {
			t.Errorf("%+v: another output", cfg)
		}
	}
}

// What a killed process leaves is named, and not removed: it may be alive.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".out.0123abcd.tmp")
	writeFile(t, filepath.Join(left, "model.safetensors"), "half")
	writeFile(t, filepath.Join(dir, ".other.0123abcd.tmp", "x"), "not ours")
	r := run(t, open(t, single, store.Config{}), filepath.Join(dir, "out"), convert.Options{})
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], left) {
		t.Errorf("notes %q, want one about %s", r.Notes, left)
	}
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
}
