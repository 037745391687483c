package store

import (
	"maps"
	"slices"
	"strings"

	"nibble/internal/rule"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// catalog is everything the containers of a checkpoint say: stored tensors in
// checkpoint order, grouped into logical tensors.
type catalog struct {
	entries  []entry
	byName   map[string]int32 // stored name → entry
	tensors  []Tensor         // logical tensors, companions hidden
	aliases  map[string]string
	metadata map[string]string
	stale    []*Error          // what disagrees with the index, or stands twice: IDX-005
	places   map[string]string // tensor → shard, as the index says; nil without one
	copies   map[copyIn]bool   // what the index has left alone
	objects  []*objectState    // quantizations that Python objects describe
	opaque   []Opaque
}

func newCatalog(index *safetensors.Index) catalog {
	c := catalog{metadata: map[string]string{}, byName: map[string]int32{}, copies: map[copyIn]bool{}}
	if index != nil {
		c.expect(len(index.WeightMap))
		c.places = make(map[string]string, len(index.WeightMap))
		for _, p := range index.WeightMap {
			c.places[p.Tensor] = p.Shard
		}
	}
	return c
}

// expect makes room for n more stored tensors. A map cannot grow ahead: it has
// room for the first that are expected, which are all if there is an index.
func (c *catalog) expect(n int) {
	if len(c.entries) == 0 && n > cap(c.entries) {
		c.byName = make(map[string]int32, n)
	}
	c.entries = slices.Grow(c.entries, n)
}

// add appends a stored tensor and returns its number, or -1 if the index says
// that another shard holds the name, or it is there already.
func (c *catalog) add(e entry) int32 {
	e.owner = -1
	if want, ok := c.places[e.name]; ok && want != e.shard.rel {
		c.noteStale(e, "copy left alone: the index places it in "+want)
		c.copies[copyIn{e.name, e.shard}] = true
		return -1
	} else if !ok && c.places != nil {
		c.noteStale(e, "the index does not name it; it is read all the same")
	}
	if old, dup := c.byName[e.name]; dup {
		if !c.displaces(&e, &c.entries[old]) {
			c.noteStale(e, "copy left alone: another shard holds it too")
			return -1
		}
		c.noteStale(c.entries[old], "copy left alone: its tensor is in another shard, with one beside it")
		c.entries[old] = e
		return old
	}
	n := int32(len(c.entries))
	c.byName[e.name] = n
	c.entries = append(c.entries, e)
	return n
}

// displaces reports whether a companion that the index does not name is to take
// the place of one in another shard: it lies where the index places its tensor.
func (c *catalog) displaces(e, old *entry) bool {
	if _, named := c.places[e.name]; named || len(c.objects) > 0 {
		return false
	}
	base, r := companionOf(e.name)
	place, ok := c.places[base]
	return r != roleNone && ok && place == e.shard.rel && place != old.shard.rel
}

// copyIn is a tensor in a shard that the index does not choose for it.
type copyIn struct {
	name  string
	shard *shard
}

// noteStale remembers what is odd about a stored tensor in the light of the
// index: a finding of rule IDX-005.
func (c *catalog) noteStale(e entry, why string) {
	found := rule.New(rule.StaleCopy, "%s", why).At(e.off).For(e.name)
	found.Path = e.shard.file.Path()
	c.stale = append(c.stale, found)
}

// addMissing lists the tensors that the index promises and no shard holds:
// each is an entry that answers with IDX-003.
func (c *catalog) addMissing(index *safetensors.Index, shards map[string]*shard) {
	strays := map[string]string{}
	for _, e := range c.stale {
		strays[e.Tensor] = e.Path
	}
	for _, p := range index.WeightMap {
		name, file := p.Tensor, p.Shard
		if _, ok := c.byName[name]; ok {
			continue
		}
		sh := shards[file]
		err := rule.New(rule.NotInShard, "the index places it in %s, which does not hold it", file)
		if stray := strays[name]; stray != "" {
			err = rule.New(rule.NotInShard, "the index is stale: it places the tensor in %s, but %s holds it", file, stray)
		}
		err.Path, err.Tensor = sh.file.Path(), name
		c.byName[name] = int32(len(c.entries))
		c.entries = append(c.entries, entry{name: name, shard: sh, owner: -1, err: err, dtype: tensor.Stored})
	}
}

// group finds the companions of every packed tensor and makes the logical
// tensors. A companion whose packed tensor is not there stays a plain tensor.
func (c *catalog) group(st *Store) {
	roles := make([]role, len(c.entries))
	for i := range c.entries {
		base, r := companionOf(c.entries[i].name)
		if r == roleNone {
			continue
		}
		b, ok := c.byName[base]
		if !ok || int(b) == i {
			continue
		}
		if (r == roleSCB || r == roleWeightFormat) && c.entries[b].dtype != tensor.I8 && c.entries[b].err == nil {
			continue // left over beside a weight that was already restored
		}
		if c.leftBehind(&c.entries[i], &c.entries[b]) {
			continue
		}
		roles[i], c.entries[i].owner = r, b
	}
	for _, o := range c.objects {
		for _, i := range o.companions {
			roles[i], c.entries[i].owner = roleObject, o.packed
		}
	}
	logical := 0
	for i := range c.entries {
		if o := c.entries[i].owner; o >= 0 && c.entries[o].owner >= 0 {
			roles[i] = roleNone // a companion of a companion is nobody's
		}
		if roles[i] == roleNone {
			logical++
		}
	}
	c.tensors = make([]Tensor, 0, logical)
	for i := range c.entries {
		if roles[i] == roleNone {
			c.entries[i].owner = -1
			c.entries[i].logical = int32(len(c.tensors))
			c.tensors = append(c.tensors, Tensor{st: st, name: c.entries[i].name, e: &c.entries[i]})
		}
	}
	for _, o := range c.objects {
		if e := &c.entries[o.packed]; e.owner < 0 {
			c.tensors[e.logical].object = o
		}
	}
	for i, r := range roles {
		if r != roleNone {
			t := &c.tensors[c.entries[c.entries[i].owner].logical]
			t.companions = append(t.companions, companion{r, &c.entries[i]})
		}
	}
}

// leftBehind reports whether a companion is a stale one: the index does not name
// it, and has moved its tensor away from the copy that it lies beside.
func (c *catalog) leftBehind(companion, packed *entry) bool {
	_, named := c.places[companion.name]
	return !named && c.copies[copyIn{packed.name, companion.shard}]
}

// findAliases reads the names of tied weights from the metadata: a key that no
// tensor has, with a tensor's name as its value.
func (c *catalog) findAliases() {
	for _, k := range slices.Sorted(maps.Keys(c.metadata)) {
		owner := c.metadata[k]
		if _, taken := c.byName[k]; taken {
			continue
		}
		if i, ok := c.byName[owner]; ok && c.entries[i].owner < 0 {
			if c.aliases == nil {
				c.aliases = map[string]string{}
			}
			c.aliases[k] = owner
		}
	}
}

// suggest lists the names that may be meant by one that is no tensor.
func (c *catalog) suggest(name string) []string {
	if i, ok := c.byName[name]; ok && c.entries[i].owner >= 0 {
		return []string{c.entries[c.entries[i].owner].name}
	}
	return c.nearest(name)
}

// nearest lists up to three logical names that look most like name.
func (c *catalog) nearest(name string) []string {
	type scored struct {
		name string
		dist int
	}
	var best []scored
	lower := strings.ToLower(name)
	for i := range c.tensors {
		have := c.tensors[i].name
		d := distance(lower, strings.ToLower(have), max(len(name)/3, 3))
		if strings.HasSuffix(have, "."+name) || strings.HasPrefix(have, name+".") {
			d = 0
		}
		if d < 0 {
			continue
		}
		best = append(best, scored{have, d})
		if len(best) > 64 {
			slices.SortStableFunc(best, func(a, b scored) int { return a.dist - b.dist })
			best = best[:3]
		}
	}
	slices.SortStableFunc(best, func(a, b scored) int { return a.dist - b.dist })
	var names []string
	for _, s := range best[:min(3, len(best))] {
		names = append(names, s.name)
	}
	return names
}

// distance is the Levenshtein distance of a and b, or -1 once it is above
// limit. Names in a file may be long: the cost is bounded by limit times their
// length.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit || len(a) > 1024 {
		return -1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
			least = min(least, row[j])
		}
		if least > limit {
			return -1
		}
	}
	if row[len(b)] > limit {
		return -1
	}
	return row[len(b)]
}
