package suite

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"nibble/bench/measure"
	"nibble/quant"
)

// Ratios are of times: slower is larger. A speedup is of rates, and what is
// cached is a MiB for each worker. What there was no time for is left out, and
// nothing is compared with it.
func TestFigures(t *testing.T) {
	const mib = 1 << 20
	rows := []Row{
		{Name: Memset, SizeBytes: mib, Cached: true, Workers: 1},
		{Name: Decode, SizeBytes: mib, Cached: true, Workers: 1},
		{Name: Decode, SizeBytes: 2 * mib, Cached: true, Workers: 2},
		{Name: Decode, SizeBytes: mib, Workers: 2},
		{Name: Ordinary, SizeBytes: mib, Workers: 2},
	}
	refs := []references{{none, none, none}, {0, none, 4}, {none, none, none}, {none, 0, none}, {none, none, none}}
	results := []measure.Result{{Seconds: 0.004}, {Seconds: 0.012, Accepted: 9, Rejected: 2}, {Seconds: 0.016}, {Seconds: 0.002}, {}}
	got := complete(rows, refs, results)
	if len(got) != 4 {
		t.Fatalf("%d rows; want 4, without the last", len(got))
	}
	same(t, "to the memset", got[1].VsMemset, 3)
	if got[1].VsFloor != nil || got[1].VsOrdinary != nil || got[1].Speedup != nil {
		t.Errorf("ratios to nothing: %+v", got[1])
	}
	if got[1].Samples != 9 || got[1].Rejected != 2 {
		t.Errorf("samples: %+v", got[1])
	}
	same(t, "rate", &got[1].GBps, 0.001048576/0.012)
	same(t, "speedup", got[2].Speedup, 1.5)
	if got[3].Speedup != nil {
		t.Errorf("speedup of what has no row with one worker: %v", *got[3].Speedup)
	}
	same(t, "to the ordinary memset", got[3].VsOrdinary, 0.5)
}

func same(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9*want {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

// Every loop of the suite runs: what it measures does not fail or panic. The
// bounds of a row are about the same bytes and workers.
func TestLoops(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx := context.Background()
	mem, err := newMemory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.free()
	files, err := newFiles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sections, err := files.sections(ctx, mem)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quant.SetKernels("auto") }()
	for _, s := range append(kernelSections(ctx, mem), sections...) {
		for i, r := range s.rows {
			if r.Kernels == "generic" && testing.Short() {
				continue
			}
			if err := s.loops[i].Run(1); err != nil {
				t.Errorf("%s %s %s: %v", r.Name, r.Scheme, r.Out, err)
			}
			s.checkReferences(t, i)
		}
	}
	if err := files.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(files.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func (s *section) checkReferences(t *testing.T, i int) {
	t.Helper()
	r, refs := s.rows[i], s.refs[i]
	if r.Name == Decode && (refs.floor == none || refs.memset == none || refs.ordinary == none) {
		t.Errorf("%+v: bounds missing: %+v", r, refs)
	}
	for _, b := range []int{refs.floor, refs.memset, refs.ordinary} {
		if b == none || r.Name == Hit {
			continue
		}
		if bound := s.rows[b]; bound.SizeBytes != r.SizeBytes || bound.Cached != r.Cached || bound.Workers != s.loops[i].Threads {
			t.Errorf("%+v is compared with %+v", r, bound)
		}
	}
}

// A done context ends a run, and the process decodes as before.
func TestRunIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	before := quant.Active()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	calls := 0
	_, err := Run(ctx, Options{Time: 2 * time.Second, Progress: func(float64) { calls++; cancel() }})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%v after %d calls; want an end after the first", err, calls)
	}
	if runtime.GOOS != "windows" {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if quant.Active() != before {
		t.Errorf("kernels are %s now; were %s", quant.Active(), before)
	}
}
