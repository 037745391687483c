package main

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nibble/cache"
	"nibble/internal/invariants"
)

func rateOf(r row, p cache.Policy) float64 { return r.rates[slices.Index(policies, p)] }

// skipParanoid skips replays under -tags invariants, where the cache hashes every
// lease: what they replay would take an hour, and the tests of the cache do it
// to more purpose.
func skipParanoid(t *testing.T) {
	if invariants.Enabled {
		t.Skip("replaying traces takes too long with paranoid checks")
	}
}

// What the policies are for, in figures.
func TestTargets(t *testing.T) {
	skipParanoid(t)
	for _, tr := range traces() {
		r, err := measure(tr)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range policies {
			if r.rates[i] > r.optimum+1e-9 {
				t.Errorf("%s at %d %%: %v has %.2f %%, above the optimum of %.2f: the bound is wrong", r.name, r.percent, p, r.rates[i], r.optimum)
			}
		}
		if sweep := rateOf(r, cache.Sweep); r.name == "cyclic sweeps" && sweep < r.optimum-2 {
			t.Errorf("sweeps at %d %%: sweep has %.1f %%, the optimum is %.1f; at most 2 points less were promised", r.percent, sweep, r.optimum)
		}
		if lru, sweep := rateOf(r, cache.LRU), rateOf(r, cache.Sweep); sweep < lru-1 {
			t.Errorf("%s at %d %%: sweep has %.1f %%, less than lru's %.1f", r.name, r.percent, sweep, lru)
		}
		if r.lag() < -5 {
			t.Errorf("%s at %d %%: auto is %.1f points behind the best after three passes; 5 were promised", r.name, r.percent, -r.lag())
		}
	}
}

// The published table is what the program prints.
func TestTableIsCurrent(t *testing.T) {
	skipParanoid(t)
	if runtime.GOARCH != "amd64" || os.Getpagesize() != 4<<10 {
		t.Skip("the table is made on amd64 with pages of 4 KiB")
	}
	want, err := os.ReadFile("../../docs/cache.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := report(&got); err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Error("docs/cache.md is not current: go run ./bench/policies > docs/cache.md")
	}
}

// The optimum is that of exhaustive search for tensors of one size, and a bound
// for others.
func TestOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.IntRange(1, 5).Draw(t, "keys")
		even := rapid.Bool().Draw(t, "one size")
		sizes := make([]int64, keys)
		for i := range sizes {
			sizes[i] = 2
			if !even {
				sizes[i] = rapid.Int64Range(1, 4).Draw(t, "size")
			}
		}
		tr := trace{budget: rapid.Int64Range(2, 5).Draw(t, "slots") * 2, passes: make([][]access, 1)}
		for range rapid.IntRange(1, 12).Draw(t, "length") {
			k := rapid.IntRange(0, keys-1).Draw(t, "key")
			tr.passes[0] = append(tr.passes[0], access{k, sizes[k]})
		}
		got, want := optimum(tr)[0], search(tr.passes[0], sizes, 0, tr.budget)
		if got > want || even && got != want {
			t.Fatalf("optimum %d, exhaustive search %d", got, want)
		}
	})
}

// search tries every choice of what to keep; kept is a set of keys.
func search(rest []access, sizes []int64, kept uint, budget int64) int64 {
	if len(rest) == 0 {
		return 0
	}
	a := rest[0]
	var cost int64
	if kept&(1<<a.key) == 0 {
		cost = a.size
	}
	full := kept | 1<<a.key
	best := int64(1 << 60)
	for set := full; ; set = (set - 1) & full { // all subsets
		if set&(1<<a.key) != 0 && bytesOf(set, sizes) <= budget {
			best = min(best, cost+search(rest[1:], sizes, set, budget))
		}
		if set == 0 {
			return best
		}
	}
}

func bytesOf(set uint, sizes []int64) (n int64) {
	for k, s := range sizes {
		if set&(1<<k) != 0 {
			n += s
		}
	}
	return n
}
