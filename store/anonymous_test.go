//go:build linux

package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"nibble/bench/synth"
	"nibble/internal/testkit"
	"nibble/store"
	"nibble/tensor"
)

// anonymous is the memory of this process that no file stands behind, in
// bytes.
func anonymous(t *testing.T) int64 {
	f, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "Anonymous: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Skip("smaps_rollup has no Anonymous")
	return 0
}

// The budget bounds what the process really has: at its peak, sweeps over a
// model many times the budget add no more than it and 32 MiB to the anonymous
// memory that the process had after Open. The sampler looks all the time, and
// so does the caller whenever a charge has changed.
func TestAnonymousMemory(t *testing.T) {
	if testing.Short() || testkit.Race {
		t.Skip("writes a large file, and the race detector has memory of its own")
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	m := synth.Model{Layers: 40, Weights: 3, Rows: 4096, Cols: 2048, Nested: true} // 24 MiB a layer packed
	if err := synth.Write(path, m); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	const budget, slack = 256 << 20, 32 << 20
	for _, policy := range []string{"lru", "auto"} {
		st := open(t, path, store.Config{CacheBudget: budget, Prefetch: 1, Policy: policy})
		base := anonymous(t)
		var peak atomic.Int64
		sample := func() {
			for now := anonymous(t) - base; ; {
				if old := peak.Load(); now <= old || peak.CompareAndSwap(old, now) {
					return
				}
			}
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					sample()
				}
			}
		})
		for _, dt := range []tensor.DType{tensor.BF16, tensor.F32, tensor.F16} {
			for layer, err := range st.Layers(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				leases, err := layer.Acquire(ctx, dt)
				if err != nil {
					t.Fatal(err)
				}
				sample()
				leases.Release()
				sample()
			}
		}
		close(done)
		wg.Wait()
		s := st.Stats()
		t.Logf("%s: budget %d MiB, ledger's peak %d MiB, anonymous peak %d MiB", policy, budget>>20, s.Peak>>20, peak.Load()>>20)
		if s.Peak > budget || peak.Load() > budget+slack {
			t.Errorf("%s: ledger's peak %d, anonymous peak %d, budget %d", policy, s.Peak, peak.Load(), int64(budget))
		}
	}
}
