package store

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// The two groups that hold what has no layer number, and the one group of a
// checkpoint without any.
const (
	groupEmbeddings = "embeddings"
	groupHead       = "head"
	groupAll        = "all"
)

// layerWords are the components after which a number counts layers.
var layerWords = []string{"layers", "h", "block", "blocks", "layer"}

// layerSpan is one layer: its name and its tensors, in checkpoint order.
type layerSpan struct {
	name    string
	index   int64 // -1 for the groups without a number
	members []*Tensor
}

// groupLayers sorts tensors into layers: prefixes in order of first
// appearance, numbers in numeric order with gaps kept, what has no number in
// embeddings (first) and head (last).
func groupLayers(ts []*Tensor) []layerSpan {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.name
	}
	shared := sharedPrefixes(names)
	spans := map[string]*layerSpan{} // by name
	rank := map[string]int{}         // prefix → order of first appearance
	var keys []layerNumber
	rest := map[string]*layerSpan{}
	for i, t := range ts {
		k, ok := layerKey(names[i], shared)
		if !ok {
			g := restGroup(names[i])
			if rest[g] == nil {
				rest[g] = &layerSpan{name: g, index: -1}
			}
			rest[g].members = append(rest[g].members, t)
			continue
		}
		if spans[k.layer()] == nil {
			spans[k.layer()] = &layerSpan{name: k.layer(), index: k.value}
			keys = append(keys, k)
			if _, seen := rank[k.prefix()]; !seen {
				rank[k.prefix()] = len(rank)
			}
		}
		spans[k.layer()].members = append(spans[k.layer()].members, t)
	}
	if len(keys) == 0 {
		if len(ts) == 0 {
			return nil
		}
		return []layerSpan{{name: groupAll, index: -1, members: ts}}
	}
	slices.SortStableFunc(keys, func(a, b layerNumber) int {
		return cmp.Or(rank[a.prefix()]-rank[b.prefix()], cmp.Compare(a.value, b.value))
	})
	var out []layerSpan
	if g := rest[groupEmbeddings]; g != nil {
		out = append(out, *g)
	}
	for _, k := range keys {
		out = append(out, *spans[k.layer()])
	}
	if g := rest[groupHead]; g != nil {
		out = append(out, *g)
	}
	return out
}

// layerNumber is an all-digit component of a tensor's name.
type layerNumber struct {
	name       string // of the tensor
	start, end int    // of the digits in it
	value      int64
}

// prefix is what stands before the number, its dot left out.
func (n layerNumber) prefix() string { return n.name[:max(n.start-1, 0)] }

// layer is the name through the number, digits as they are written: 01 is not 1.
func (n layerNumber) layer() string { return n.name[:n.end] }

// layerKey finds the layer number of name: the first one behind a layer word,
// else the first one whose prefix other numbers share too.
func layerKey(name string, shared map[string]bool) (layerNumber, bool) {
	for n := range numbers(name) {
		parent := n.prefix()
		if slices.Contains(layerWords, parent[strings.LastIndexByte(parent, '.')+1:]) {
			return n, true
		}
	}
	for n := range numbers(name) {
		if shared[n.prefix()] {
			return n, true
		}
	}
	return layerNumber{}, false
}

// sharedPrefixes finds the prefixes that stand before at least two different
// numbers, experts aside.
func sharedPrefixes(names []string) map[string]bool {
	first := map[string]int64{}
	shared := map[string]bool{}
	for _, name := range names {
		for n := range numbers(name) {
			p := n.prefix()
			if f, seen := first[p]; !seen {
				first[p] = n.value
			} else if f != n.value {
				shared[p] = true
			}
		}
	}
	return shared
}

// numbers yields the components of name that may count layers. A number that
// counts experts is left out.
func numbers(name string) iter.Seq[layerNumber] {
	return func(yield func(layerNumber) bool) {
		start := 0
		for i := 0; i <= len(name); i++ {
			if i < len(name) && name[i] != '.' {
				continue
			}
			value, err := strconv.ParseUint(name[start:i], 10, 62)
			n := layerNumber{name, start, i, int64(value)}
			if err == nil && !strings.HasSuffix(n.prefix(), "experts") && !strings.HasSuffix(n.prefix(), "expert") && !yield(n) {
				return
			}
			start = i + 1
		}
	}
}

// restGroup places a name without a layer number before or after the layers.
func restGroup(name string) string {
	for _, c := range strings.Split(strings.ToLower(name), ".") {
		switch {
		case c == "embed_out":
			return groupHead
		case strings.Contains(c, "emb"), c == "wte", c == "wpe", c == "shared":
			return groupEmbeddings
		}
	}
	return groupHead
}
