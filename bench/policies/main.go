// Policies compares the eviction policies of package cache with each other and
// with the optimum, on made-up traces, and writes the table in docs/cache.md:
//
//	go run ./bench/policies > docs/cache.md
//
// It measures the cache itself, with a loader that decodes nothing, so the
// figures include the rounding of regions and what the arena keeps.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"nibble/cache"
)

var policies = []cache.Policy{cache.LRU, cache.TwoQ, cache.Sweep, cache.Auto}

func main() {
	if err := report(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// replay runs t through a cache and returns the bytes decoded in each pass.
func replay(t trace, p cache.Policy) ([]int64, error) {
	c := cache.New[int](cache.Options{Budget: t.budget, Policy: p})
	defer c.Close()
	load := func(context.Context, []cache.Item[int], [][]byte) error { return nil }
	var decoded []int64
	var before int64
	for _, pass := range t.passes {
		for _, a := range pass {
			l, err := c.Acquire(context.Background(), cache.Item[int]{Key: a.key, Size: a.size}, load)
			if err != nil {
				return nil, err
			}
			l.Release()
		}
		n := c.Stats().BytesDecoded
		decoded = append(decoded, n-before)
		before = n
	}
	return decoded, nil
}

// rate is 1 - decoded/acquired over the passes from the given one on, in
// percent.
func rate(t trace, decoded []int64, from int) float64 {
	var d, a int64
	for i := from; i < len(t.passes); i++ {
		d += decoded[i]
		for _, x := range t.passes[i] {
			a += x.size
		}
	}
	return 100 * (1 - float64(d)/float64(a))
}

// row is one trace's rates.
type row struct {
	name    string
	percent int64 // budget, of the model
	rates   []float64
	settled []float64 // from the fourth pass on
	optimum float64
}

func measure(t trace) (row, error) {
	best := optimum(t)
	r := row{name: t.name, percent: (100*t.budget + t.model/2) / t.model, optimum: rate(t, best, 1)}
	for _, p := range policies {
		decoded, err := replay(t, p)
		if err != nil {
			return row{}, err
		}
		r.rates = append(r.rates, rate(t, decoded, 1))
		r.settled = append(r.settled, rate(t, decoded, 3))
	}
	return r, nil
}

const preamble = `# Policies

Which idle output goes first when bytes are needed. This table is made by
` + "`go run ./bench/policies > docs/cache.md`" + `; please do not edit it.

The rate is 1 − bytes decoded / bytes acquired, in percent, one tensor at a time, over
passes 2 to 20, without prefetch. The optimum knows the future, leases one tensor
at a time as the others do, and may keep tensors in part: nobody can be better.
The last column is auto from pass 4 on, less the best of the others there.

| trace | budget, % of the model |`

const notes = `
**lru** (default): what was released longest ago. Right for working sets and for reading
back and forth; useless (0) for repeated passes over a model that exceeds the budget,
because each tensor goes just before it is needed.

**sweep**: finds the place in the past that the present repeats and evicts what is needed
last from there on. Without a pattern it is lru.

**2q**: tensors that were asked for once wait in a short queue and do not push out those
that came again.

**auto**: simulates the three by keys and sizes and evicts as the one that would have had to
decode the fewest bytes in about the last pass. A hit costs more than under the others.

The traces, 20 passes each: *cyclic sweeps* over 32 layers of nine tensors; *forward and
backward* over the same; *random*, each tensor equally likely; *experts*, 2 of 16 experts in each
layer by Zipf weights, with ranks that trade places; *mixed*, six sweeps, five passes in a
skewed working set, five back and forth, four random.
`

func report(w io.Writer) error {
	head, rule := preamble, "|---|---:|"
	for _, p := range policies {
		head += fmt.Sprintf(" %v |", p)
		rule += "---:|"
	}
	fmt.Fprintln(w, head+" optimum | auto − best |")
	fmt.Fprintln(w, rule+"---:|---:|")
	for _, t := range traces() {
		r, err := measure(t)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "| %s | %d |", r.name, r.percent)
		for _, x := range r.rates {
			fmt.Fprintf(w, " %.1f |", x)
		}
		fmt.Fprintf(w, " %.1f | %+.1f |\n", r.optimum, r.lag())
	}
	_, err := fmt.Fprint(w, notes)
	return err
}

// lag is auto's settled rate less the best of the others.
func (r row) lag() float64 {
	best := 0.0
	for i, p := range policies {
		if p != cache.Auto {
			best = max(best, r.settled[i])
		}
	}
	for i, p := range policies {
		if p == cache.Auto {
			return r.settled[i] - best
		}
	}
	return 0
}
