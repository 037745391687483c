package pytorch

import (
	"slices"
	"strings"

	"nibble/internal/rule"
	"nibble/tensor"
)

// optimizerLevel is the key under which newer bitsandbytes keeps the quantized
// part of an optimizer's state.
const optimizerLevel = "__bnb_optimizer_quant_state__"

// optimizerBlock is the blocksize of 8-bit optimizers. It is nowhere stored.
const optimizerBlock = 256

// group finds the quantized tensors among the values of one dict.
type group struct {
	w       *walker
	entries []entry
	byName  map[string]int // entry of a string key
	at      []int          // index of the tensor that an entry is, or -1
	states  []keyedState
}

// keyedState is a quant state found under a key.
type keyedState struct {
	key string
	q   *Quantized
}

func isStateKey(key value) bool {
	s, ok := key.(string)
	return ok && (s == "quant_state" || strings.HasSuffix(s, ".quant_state"))
}

// state walks entry i, which holds a quant state.
func (g *group) state(i int) {
	e := g.entries[i]
	g.states = append(g.states, keyedState{e.key.(string), g.w.readState(e.key, e.val)})
}

func (g *group) find() {
	for _, s := range g.states {
		if i := g.codes(s.key); i >= 0 {
			g.w.addQuantized(i, s.q)
		}
	}
	for i, e := range g.entries {
		if key, ok := e.key.(string); ok {
			g.flat(i, key)
			g.weightFormat(i, key)
		}
	}
	g.optimizer("state1", "qmap1", "absmax1")
	g.optimizer("state2", "qmap2", "absmax2")
}

// tensor is the index of the tensor under a key, or -1.
func (g *group) tensor(key string) int {
	if i, ok := g.byName[key]; ok {
		return g.at[i]
	}
	return -1
}

// codes finds the tensor that the state under key belongs to: "w" for
// "w.quant_state"; for a plain "quant_state" the weight beside it, under the
// names that are in use, or else the only tensor beside it.
func (g *group) codes(key string) int {
	if base, ok := strings.CutSuffix(key, ".quant_state"); ok {
		return g.tensor(base)
	}
	for _, name := range []string{"weight", "q", "packed", "data"} {
		if i := g.tensor(name); i >= 0 {
			return i
		}
	}
	only := -1
	for _, i := range g.at {
		if i >= 0 && only >= 0 {
			return -1
		}
		only = max(only, i)
	}
	return only
}

// flat finds a state that was merged into the dict of its tensor: "w.blocksize"
// and so on, as Python values. As tensors they would be the packed layout.
func (g *group) flat(i int, key string) {
	if g.at[i] < 0 || !g.scalar(key+".quant_type") && !g.scalar(key+".blocksize") {
		return
	}
	p := newStateParser(func(v value) int {
		for _, name := range tensorFields {
			if j, ok := g.byName[key+"."+name]; ok && g.entries[j].val == v {
				return g.at[j]
			}
		}
		return -1
	})
	for _, name := range tensorFields {
		if j := g.tensor(key + "." + name); j >= 0 {
			p.q.Companions = append(p.q.Companions, j)
		}
	}
	p.fields(func(field string) (value, bool) {
		j, ok := g.byName[key+"."+field]
		if !ok {
			return nil, false
		}
		return g.entries[j].val, true
	})
	g.w.addQuantized(g.at[i], p.q)
}

// scalar reports whether there is a value that is not a tensor under key.
func (g *group) scalar(key string) bool {
	i, ok := g.byName[key]
	return ok && g.at[i] < 0
}

// weightFormat finds LLM.int8() layers whose layout is said by a Python value,
// as bitsandbytes did before it became a tensor.
func (g *group) weightFormat(i int, key string) {
	module, ok := strings.CutSuffix(key, "weight_format")
	if !ok || g.at[i] >= 0 || module != "" && !strings.HasSuffix(module, ".") {
		return
	}
	w := g.tensor(module + "weight")
	if w < 0 {
		return
	}
	q := newQuantized(SchemeInt8)
	if q.SCB = g.tensor(module + "SCB"); q.SCB >= 0 {
		q.Companions = []int{q.SCB}
	} else {
		q.Err = rule.New(rule.SCB, "missing companion %q", module+"SCB")
	}
	switch v := g.entries[i].val.(type) {
	case string:
		q.WeightFormat = v
	case nil:
	default:
		var b strings.Builder
		repr(&b, v, maxReprDepth)
		q.WeightFormat = b.String()
	}
	g.w.addQuantized(w, q)
}

// optimizer finds a state of an 8-bit optimizer with its map and scales. One of
// 32 bits has neither, and is a plain tensor.
func (g *group) optimizer(state, qmap, absmax string) {
	i, m, a := g.tensor(state), g.tensor(qmap), g.tensor(absmax)
	if i < 0 || g.w.f.Tensors[i].DType != tensor.U8 || m < 0 && a < 0 {
		return
	}
	q := newQuantized(SchemeBlockwise8)
	q.BlockSize, q.DType = optimizerBlock, tensor.F32.Torch()
	q.QuantMap, q.Absmax = m, a
	for _, c := range []struct {
		name  string
		index int
	}{{qmap, m}, {absmax, a}} {
		if c.index >= 0 {
			q.Companions = append(q.Companions, c.index)
		} else {
			q.Err = rule.New(rule.Companion, "missing companion %q", c.name)
		}
	}
	g.w.addQuantized(i, q)
}

// pair lists a sequence that is what bitsandbytes' functions return, (codes,
// state), and reports whether it is.
func (w *walker) pair(items []value) bool {
	if len(items) != 2 {
		return false
	}
	t, ok := items[0].(*tensorValue)
	if !ok || !isState(t, items[1]) {
		return false
	}
	i := w.at(int64(0), t)
	if q := w.readState(int64(1), items[1]); i >= 0 {
		w.addQuantized(i, q)
	}
	return true
}

// parameter lists a Params4bit or Int8Params that was pickled as an instance.
// It is the tensor in its data, or CB where data is absent.
func (w *walker) parameter(attrs *dict) int {
	for _, key := range []string{"data", "CB"} {
		if v, _ := attrs.get(key); v != nil {
			if t, ok := v.(*tensorValue); ok {
				i := w.visit(t)
				if i >= 0 {
					w.attributes(i, t, attrs)
				}
				return i
			}
		}
	}
	w.dict(attrs)
	return -1
}

// attributes lists what tensor number i, which is t, has as attributes. Its own
// data under another name is not listed again, nor is the module that holds it.
// A tensor that is part of a quant state has none of interest.
func (w *walker) attributes(i int, t *tensorValue, attrs *dict) {
	if w.scope != nil {
		return
	}
	scb := -1
	entries, _ := w.live(attrs)
	for _, e := range entries {
		switch {
		case e.key == "data" || e.key == "CB" || e.key == "module" || e.val == value(t):
		case e.key == "quant_state" && stateful(e.val):
			w.addQuantized(i, w.readState(e.key, e.val))
		case e.key == "SCB":
			scb = w.at(e.key, e.val)
		default:
			w.at(e.key, e.val)
		}
	}
	if scb >= 0 && t.dtype == tensor.I8 {
		q := newQuantized(SchemeInt8)
		q.SCB, q.Companions = scb, []int{scb}
		w.addQuantized(i, q)
	}
}

func newQuantized(scheme string) *Quantized {
	return &Quantized{
		Scheme: scheme, Packed: -1, Absmax: -1, QuantMap: -1, NestedAbsmax: -1,
		NestedMap: -1, OffsetTensor: -1, SCB: -1, JSON: -1,
	}
}

// addQuantized records q as the state of tensor i. A tensor has one state: if
// the file gives it two, it is not understood.
func (w *walker) addQuantized(i int, q *Quantized) {
	name := w.f.Tensors[i].Name
	if k, ok := w.packed[i]; ok {
		if first := &w.f.Quantized[k]; first.Err == nil {
			first.Err = rule.New(rule.QuantClash, "two quant states").For(name)
		}
		return
	}
	w.packed[i] = len(w.f.Quantized)
	w.meter.charge(2*costListed + 8*int64(len(q.Companions)+len(q.Shape)))
	q.Name, q.Packed = name, i
	if q.Err != nil {
		q.Err.Tensor = name
	}
	slices.Sort(q.Companions)
	w.f.Quantized = append(w.f.Quantized, *q)
}

func (w *walker) sortQuantized() {
	slices.SortFunc(w.f.Quantized, func(a, b Quantized) int { return a.Packed - b.Packed })
}
