package store

import (
	"slices"
	"sort"
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
	type key struct {
		prefix string
		index  int64
	}
	spans := map[key]*layerSpan{}
	rank := map[string]int{} // prefix → order of first appearance
	var keys []key
	rest := map[string]*layerSpan{}
	for i, t := range ts {
		prefix, index, ok := layerKey(names[i], shared)
		if !ok {
			g := restGroup(names[i])
			if rest[g] == nil {
				rest[g] = &layerSpan{name: g, index: -1}
			}
			rest[g].members = append(rest[g].members, t)
			continue
		}
		k := key{prefix, index}
		if spans[k] == nil {
			spans[k] = &layerSpan{name: layerName(prefix, index), index: index}
			keys = append(keys, k)
			if _, seen := rank[prefix]; !seen {
				rank[prefix] = len(rank)
			}
		}
		spans[k].members = append(spans[k].members, t)
	}
	if len(keys) == 0 {
		if len(ts) == 0 {
			return nil
		}
		return []layerSpan{{name: groupAll, index: -1, members: ts}}
	}
	sort.SliceStable(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		if a.prefix != b.prefix {
			return rank[a.prefix] < rank[b.prefix]
		}
		return a.index < b.index
	})
	var out []layerSpan
	if g := rest[groupEmbeddings]; g != nil {
		out = append(out, *g)
	}
	for _, k := range keys {
		out = append(out, *spans[k])
	}
	if g := rest[groupHead]; g != nil {
		out = append(out, *g)
	}
	return out
}

func layerName(prefix string, index int64) string {
	n := strconv.FormatInt(index, 10)
	if prefix == "" {
		return n // a bare nn.Sequential: 0.weight, 2.weight
	}
	return prefix + "." + n
}

// layerKey splits name at its layer number: the first one behind a layer word,
// else the first one whose prefix other numbers share too.
func layerKey(name string, shared map[string]bool) (prefix string, index int64, ok bool) {
	for dot, next := range numbers(name) {
		parent := name[:dot]
		if slices.Contains(layerWords, parent[strings.LastIndexByte(parent, '.')+1:]) {
			return parent, next, true
		}
	}
	for dot, next := range numbers(name) {
		if shared[name[:dot]] {
			return name[:dot], next, true
		}
	}
	return "", 0, false
}

// sharedPrefixes finds the prefixes that stand before at least two different
// numbers, experts aside.
func sharedPrefixes(names []string) map[string]bool {
	first := map[string]int64{}
	shared := map[string]bool{}
	for _, name := range names {
		for dot, n := range numbers(name) {
			p := name[:dot]
			if f, seen := first[p]; !seen {
				first[p] = n
			} else if f != n {
				shared[p] = true
			}
		}
	}
	return shared
}

// numbers yields each all-digit component of name that may count layers: the
// length of the prefix before it, and its value. A number that counts experts
// is left out.
func numbers(name string) func(yield func(int, int64) bool) {
	return func(yield func(int, int64) bool) {
		start := 0
		for i := 0; i <= len(name); i++ {
			if i < len(name) && name[i] != '.' {
				continue
			}
			dot := max(start-1, 0)
			n, err := strconv.ParseUint(name[start:i], 10, 62)
			parent := name[:dot]
			if err == nil && !strings.HasSuffix(parent, "experts") && !strings.HasSuffix(parent, "expert") {
				if !yield(dot, int64(n)) {
					return
				}
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
