package store_test

import (
	"context"
	"strings"
	"testing"

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
