package main

import (
	"testing"

	"nibble/bench/suite"
)

// Without memory's own figure, a machine on which two workers gain nothing
// looks like a decoder that does not share its work.
func TestMemoryNote(t *testing.T) {
	row := func(name string, mib int64, cached bool, speedup float64) suite.Row {
		r := suite.Row{Name: name, SizeBytes: mib << 20, Cached: cached, Workers: 1, GBps: 21.4, Samples: suite.Enough}
		if speedup > 0 {
			r.Workers, r.Speedup, r.GBps = 2, &speedup, 42.8
		}
		return r
	}
	rows := []suite.Row{
		row(suite.Memset, 2, true, 1.99),
		row(suite.Memset, 64, false, 0),
		row(suite.Memset, 64, false, 1.0149),
		row(suite.Decode, 64, false, 1.05),
		row(suite.Memset, 16, false, 1.2),
	}
	const want = "memset past the caches by 2 workers: 1.01 times that by one, 43 GB/s; no decoder writes faster"
	if got, ok := memoryNote(rows); !ok || got != want {
		t.Errorf("%q, %v; want %q", got, ok, want)
	}
	if got, ok := memoryNote(rows[:2]); ok {
		t.Errorf("from one worker: %q", got)
	}
	contended := rows[2]
	contended.Samples = suite.Enough - 1
	if got, ok := memoryNote([]suite.Row{contended}); ok {
		t.Errorf("from contended samples: %q", got)
	}
}
