package pytorch

import (
	"strconv"
	"strings"

	"nibble/internal/rule"
)

// walker lists the tensors in a tree of objects and names them by their paths.
// Objects may be shared and may contain themselves: what is shared is listed
// once for each path, as Python would show it, a cycle is followed once, and
// the meter bounds the whole.
type walker struct {
	f     *File
	meter *meter
	lim   Limits
	path  []value // keys from the root; an index is an int64
	depth int
	names map[string]int // how often a name was wanted
	cycle bool           // the container being walked holds one of its ancestors
	err   error
	// scope finds the tensors of a quant state by identity while it is walked,
	// and says that it is; nil elsewhere.
	scope  map[*tensorValue]int
	packed map[int]int // tensors that are the codes of a Quantized, by index to its index
}

func newWalker(f *File, m *meter, lim Limits) *walker {
	return &walker{f: f, meter: m, lim: lim, names: make(map[string]int), packed: make(map[int]int)}
}

// walk lists what is in root under paths that begin with prefix.
func (w *walker) walk(root value, prefix []value) error {
	if c := w.unsupported(root); c != "" {
		return rule.New(rule.TorchClass, "the file holds %s, a class that is not read", c)
	}
	w.path = append(w.path[:0], prefix...)
	w.visit(root)
	if w.err == nil && w.meter.over() {
		w.err = w.meter.err()
	}
	return w.err
}

// unsupported names the class of a root that is nothing but an instance of it.
func (w *walker) unsupported(root value) string {
	switch v := root.(type) {
	case *global:
		return v.String()
	case *object:
		if !w.transparent(v) {
			return v.class.String()
		}
	}
	return ""
}

// transparent reports whether the attributes of an object are walked.
func (w *walker) transparent(o *object) bool {
	return w.f.Kind == TorchScript && strings.HasPrefix(o.class.module, "__torch__") || isQuantState(o) || isParameter(o.class)
}

// finish returns the file once everything is walked.
func (w *walker) finish() (*File, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.sortQuantized()
	return w.f, nil
}

// visit lists what is in v, found at the current path, and returns the index of
// the tensor if v is one, else -1.
func (w *walker) visit(v value) int {
	w.meter.charge(costBox)
	if w.err != nil {
		return -1
	}
	if w.meter.over() {
		w.err = w.meter.err()
		return -1
	}
	switch v := v.(type) {
	case *tensorValue:
		return w.tensor(v)
	case *object:
		return w.object(v)
	case *global:
		if !inertGlobal(v) {
			w.opaque(v)
		}
	case *dict:
		w.enter(v, func() { w.dict(v) })
	case *list:
		w.enter(v, func() { w.sequence(v.items) })
	case *tuple:
		w.enter(v, func() { w.sequence(v.items) })
	}
	return -1
}

// enter walks a container by f, unless it is one of its own ancestors or is
// known to hold nothing. Without the latter a chain of tuples, each holding its
// predecessor twice, would take forever to list nothing.
func (w *walker) enter(c interface{ visited() *visits }, f func()) {
	v := c.visited()
	switch {
	case v.onPath:
		w.cycle = true
		return
	case v.barren:
		return
	case w.depth >= w.lim.Depth:
		w.err = rule.New(rule.TorchLimit, "limit exceeded: objects nested more than %d deep", w.lim.Depth)
		return
	}
	outer, before := w.cycle, len(w.f.Tensors)+len(w.f.Opaque)
	w.cycle = false
	v.onPath = true
	w.depth++
	f()
	w.depth--
	v.onPath = false
	// Inside a cycle the same container may hold more when met on another path.
	v.barren = !w.cycle && w.err == nil && len(w.f.Tensors)+len(w.f.Opaque) == before
	w.cycle = w.cycle || outer
}

// at visits v under key.
func (w *walker) at(key, v value) int {
	w.path = append(w.path, key)
	i := w.visit(v)
	w.path = w.path[:len(w.path)-1]
	return i
}

func (w *walker) sequence(items []value) {
	if w.scope == nil && w.pair(items) {
		return
	}
	for i, it := range items {
		w.at(int64(i), it)
	}
}

// live returns the entries that count: of equal keys the last value, at the
// place of the last.
func (w *walker) live(d *dict) ([]entry, map[string]int) {
	w.meter.charge(int64(len(d.entries)) * costContainer)
	if w.meter.over() {
		return nil, nil
	}
	byName := make(map[string]int, len(d.entries))
	var byInt map[int64]int
	var dead map[int]bool
	bury := func(i int, ok bool) {
		if ok {
			if dead == nil {
				dead = make(map[int]bool)
			}
			dead[i] = true
		}
	}
	for i, e := range d.entries {
		switch k := e.key.(type) {
		case string:
			j, ok := byName[k]
			bury(j, ok)
			byName[k] = i
		case int64:
			if byInt == nil {
				byInt = make(map[int64]int)
			}
			j, ok := byInt[k]
			bury(j, ok)
			byInt[k] = i
		}
	}
	if dead == nil {
		return d.entries, byName
	}
	var entries []entry
	for i, e := range d.entries {
		if dead[i] {
			continue
		}
		if k, ok := e.key.(string); ok {
			byName[k] = len(entries)
		}
		entries = append(entries, e)
	}
	return entries, byName
}

// dict lists the values of a dict and finds the quantized tensors among them.
func (w *walker) dict(d *dict) {
	entries, byName := w.live(d)
	if w.scope != nil {
		// Parts of a quant state; what they mean is read from the state itself.
		for _, e := range entries {
			w.at(e.key, e.val)
		}
		return
	}
	g := &group{w: w, entries: entries, byName: byName, at: make([]int, len(entries))}
	for i, e := range entries {
		g.at[i] = -1
		switch {
		case e.key == optimizerLevel:
			// Newer bitsandbytes wraps an optimizer's state for FSDP; the
			// names are those of the plain form.
			w.visit(e.val)
		case isStateKey(e.key) && stateful(e.val):
			g.state(i)
		default:
			g.at[i] = w.at(e.key, e.val)
		}
		if w.err != nil {
			return
		}
	}
	g.find()
}

// object lists what an instance holds: a parameter of bitsandbytes is a tensor
// with a state, a module of TorchScript is its attributes, others are opaque.
func (w *walker) object(o *object) (index int) {
	index = -1
	switch attrs := o.attrs(); {
	case !w.transparent(o):
		w.opaque(o.class)
	case attrs == nil:
	case isParameter(o.class):
		w.enter(o, func() { index = w.parameter(attrs) })
	default:
		w.enter(o, func() { w.dict(attrs) })
	}
	return index
}

func (w *walker) opaque(class *global) {
	name := w.name()
	w.meter.charge(costContainer + 2*int64(len(name)) + costGlobal + int64(len(class.module)+len(class.name)))
	w.f.Opaque = append(w.f.Opaque, Opaque{Name: name, Class: class.String()})
}

// tensor lists t and returns its index.
func (w *walker) tensor(t *tensorValue) int {
	name := w.unique(w.name())
	w.meter.charge(costListed + 2*int64(len(name)))
	i := len(w.f.Tensors)
	out := Tensor{
		Name: name, DType: t.dtype, Shape: t.shape, Strides: t.strides,
		Storage: t.storage, Start: t.start, Kind: t.kind,
	}
	if t.err != nil {
		e := *t.err // shared with the other tensors of a bad storage
		out.Err = e.For(name)
	} else {
		out.Contiguous = t.contiguous()
	}
	w.f.Tensors = append(w.f.Tensors, out)
	if w.scope != nil {
		if _, ok := w.scope[t]; !ok {
			w.scope[t] = i
		}
	}
	if attrs := attrsOf(t.state); attrs != nil && t.err == nil {
		w.enter(t, func() { w.attributes(i, t, attrs) })
	}
	return i
}

// maxPath is the longest name of a tensor, in bytes.
const maxPath = 64 << 10

// name is the current path with dots.
func (w *walker) name() string {
	if len(w.path) == 0 {
		return "tensor"
	}
	var b strings.Builder
	for i, k := range w.path {
		if i > 0 {
			b.WriteByte('.')
		}
		keyName(&b, k)
		if b.Len() > maxPath {
			w.err = rule.New(rule.TorchLimit, "limit exceeded: a name of more than %d bytes", maxPath)
			break
		}
	}
	return b.String()
}

// unique makes a name that no earlier tensor has.
func (w *walker) unique(name string) string {
	n := w.names[name]
	w.names[name]++
	if n == 0 {
		return name
	}
	for {
		n++
		try := name + "#" + strconv.Itoa(n)
		if w.names[try] == 0 {
			w.names[try]++
			w.names[name] = n
			return try
		}
	}
}
