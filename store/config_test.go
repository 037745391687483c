package store_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"nibble/mmap"
	"nibble/quant"
	"nibble/store"
)

// All problems are reported at once: who fixes one must not meet the next.
func TestValidateReportsAll(t *testing.T) {
	err := store.Config{
		CacheBudget: -2, Workers: -1, Prefetch: -1, Descriptors: -1, Policy: "fifo", Full: "maybe",
		SourcePages: "burn", Backend: "fuse", Kernels: "warp9",
	}.Validate()
	if err == nil {
		t.Fatal("want an error")
	}
	for _, name := range []string{"cache_budget", "workers", "prefetch", "descriptors", "policy", "full", "source_pages", "backend", "kernels"} {
		if !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("%s is not reported in %q", name, err)
		}
	}
	if err := (store.Config{}).Validate(); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
	if err := (store.Config{}).Effective().Validate(); err != nil {
		t.Errorf("the effective zero Config: %v", err)
	}
}

// What Effective says is what holds: kernels by name, and no 0 that stands for
// another number.
func TestEffective(t *testing.T) {
	defer quant.SetKernels("auto")
	if err := quant.SetKernels("generic"); err != nil {
		t.Fatal(err)
	}
	got := store.Config{}.Effective()
	want := store.Config{
		CacheBudget: 1 << 30, Workers: runtime.GOMAXPROCS(0), Policy: "lru", Full: "wait", SourcePages: "keep", Backend: "auto",
		Kernels:     "generic", // "" leaves the choice of others alone
		Descriptors: mmap.DefaultDescriptors(),
		Limits:      store.Limits{Depth: 1000, Memory: 4 << 30, Records: 1 << 20, PickleBytes: 256 << 20},
	}
	if got != want {
		t.Errorf("the zero Config: got %+v, want %+v", got, want)
	}
	if got := (store.Config{Kernels: "auto"}).Effective().Kernels; got != quant.Kernels()[0] {
		t.Errorf("Kernels auto: got %s, want %s", got, quant.Kernels()[0])
	}
	given := store.Config{
		CacheBudget: store.NoCache, Workers: 3, Policy: "2q", Prefetch: 1, Full: "fail", Strict: true, SourcePages: "drop",
		Backend: "pread", CopyPlain: true, Kernels: quant.Kernels()[0], Descriptors: 5, Limits: store.Limits{Depth: 1, Memory: 2, Records: 3, PickleBytes: 4},
	}
	if got := given.Effective(); got != given {
		t.Errorf("got %+v, want what was given, %+v", got, given)
	}
}

// Kernels takes effect when a store is opened, and "" leaves the choice of
// others alone.
func TestKernelsOfConfig(t *testing.T) {
	defer quant.SetKernels("auto")
	open := func(kernels string) {
		t.Helper()
		st, err := store.Open(context.Background(), "../testdata/golden/model_single", store.WithConfig(store.Config{Kernels: kernels}))
		if err != nil {
			t.Fatal(err)
		}
		st.Close()
	}
	for _, c := range []struct{ set, want string }{
		{"generic", "generic"}, {"", "generic"}, {"auto", quant.Kernels()[0]},
	} {
		if open(c.set); quant.Active() != c.want {
			t.Errorf("Kernels %q: %s is active, want %s", c.set, quant.Active(), c.want)
		}
	}
}
