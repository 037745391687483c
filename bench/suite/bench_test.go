package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"nibble/quant"
)

// The rows of nibble bench, as Go benchmarks: what memory allows, kernels, and
// the way from a file. Contended samples are not rejected here; benchstat shows
// how far they scatter.
func BenchmarkRow(b *testing.B) {
	b.Setenv("TMPDIR", b.TempDir())
	ctx := context.Background()
	mem, err := newMemory(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer mem.free()
	files, err := newFiles(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer files.remove()
	paths, err := files.sections(ctx, mem)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = quant.SetKernels("auto") }()
	for _, s := range append(kernelSections(ctx, mem), paths...) {
		for i, r := range s.rows {
			b.Run(benchmarkName(r), func(b *testing.B) {
				b.SetBytes(r.SizeBytes)
				for b.Loop() {
					if err := s.loops[i].Run(1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchmarkName has a key for each column that says something.
func benchmarkName(r Row) string {
	scheme := r.Scheme
	if r.Nested {
		scheme += "-nested"
	}
	var parts []string
	add := func(key, value string) {
		if value != "" {
			parts = append(parts, key+"="+strings.ReplaceAll(strings.ReplaceAll(value, ", ", "-"), " ", "-"))
		}
	}
	add("what", r.Name)
	add("impl", r.Kernels)
	add("scheme", scheme)
	add("out", r.Out)
	if r.SizeBytes > 0 {
		add("size", fmt.Sprintf("%dMiB", r.SizeBytes>>20))
	}
	if r.Cached {
		add("dst", "cached")
	}
	if r.Section == fromFile {
		add("section", r.Section) // bounds stand in others as well
	}
	if r.Tensors > 1 {
		add("tensors", fmt.Sprint(r.Tensors))
	}
	add("workers", fmt.Sprint(r.Workers))
	return strings.Join(parts, "/")
}
