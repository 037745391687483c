package store

import (
	"strings"

	"nibble/internal/rule"
	"nibble/quant"
	"nibble/tensor"
)

// bind finds the decoder of t and the stored parts that feed it.
func (t *Tensor) bind() *resolution {
	r := &resolution{scheme: SchemePlain, shape: t.e.shape}
	if r.err = t.e.err; r.err != nil {
		return r
	}
	switch {
	case t.object != nil:
		t.object.bind(t, r)
	case len(t.companions) == 0:
		r.dec = quant.NewPlain(t.e.numel, t.e.dtype, false)
		r.parts[0] = t.e
	default:
		t.bindCompanions(r)
	}
	return r
}

// bindCompanions tells the two families apart: LLM.int8() names its statistics
// by module, 4-bit by parameter.
func (t *Tensor) bindCompanions(r *resolution) {
	set, err := t.companionSet()
	if err != nil {
		r.scheme, r.err = SchemeUnknown, err
		return
	}
	int8s := set[roleSCB] != nil || set[roleWeightFormat] != nil
	four := set[roleAbsmax] != nil || set[roleQuantMap] != nil || set[roleNestedAbsmax] != nil ||
		set[roleNestedMap] != nil || set[roleState] != nil
	switch {
	case int8s && four:
		r.scheme, r.err = SchemeUnknown, rule.New(rule.QuantClash, "companions of both LLM.int8() and 4-bit quantization")
	case int8s:
		t.bindInt8(r, set)
	default:
		t.bindFourBit(r, set)
	}
}

// companionSet sorts the companions by role. Two of one role, or one that the
// index promises and no shard holds, are errors.
func (t *Tensor) companionSet() (set [numRoles]*entry, err error) {
	for _, c := range t.companions {
		if set[c.role] != nil {
			return set, rule.New(rule.QuantClash, "two quant states: %q and %q", set[c.role].name, c.e.name)
		}
		if c.e.err != nil {
			return set, rule.New(rule.Companion, "missing companion %q: %w", c.e.name, c.e.err)
		}
		set[c.role] = c.e
	}
	return set, nil
}

// stored is what quant asks to know of a companion; nil stays nil.
func stored(e *entry) *quant.Stored {
	if e == nil {
		return nil
	}
	return &quant.Stored{DType: e.dtype, Shape: e.shape, Bytes: e.n}
}

func (t *Tensor) bindFourBit(r *resolution, set [numRoles]*entry) {
	r.scheme = SchemeUnknown
	if set[roleState] == nil {
		r.err = rule.New(rule.Companion, "missing companion %s", t.name+stateMark+"…")
		return
	}
	name := set[roleState].name
	kind := name[strings.LastIndex(name, stateMark)+len(stateMark):]
	r.scheme = fourBitScheme(kind)
	data, err := set[roleState].read(quant.MaxState)
	if err != nil {
		r.err = err
		return
	}
	state, err := quant.ParseState(data)
	if err != nil {
		r.err = atEntry(err, set[roleState])
		return
	}
	state.NameType = kind
	t.bindState(r, state, set)
}

func fourBitScheme(quantType string) Scheme {
	switch quantType {
	case "nf4":
		return SchemeNF4
	case "fp4":
		return SchemeFP4
	}
	return SchemeUnknown
}

// bindState binds the 4-bit decoder of state, whether it was JSON or objects.
func (t *Tensor) bindState(r *resolution, state *quant.State, set [numRoles]*entry) {
	r.state, r.blockSize = state, state.BlockSize
	r.nested = set[roleAbsmax] != nil && set[roleAbsmax].dtype == tensor.U8
	d, err := quant.NewFourBit(state, fourBitParts(t.e, set))
	if err != nil {
		r.err = err
		return
	}
	r.dec, r.scheme, r.shape = d, fourBitScheme(state.QuantType), state.Shape
	r.parts = [quant.MaxParts]*entry{t.e, set[roleAbsmax], set[roleNestedAbsmax], set[roleNestedMap]}
}

func fourBitParts(packed *entry, set [numRoles]*entry) quant.FourBitParts {
	return quant.FourBitParts{
		Packed:       *stored(packed),
		Absmax:       stored(set[roleAbsmax]),
		QuantMap:     stored(set[roleQuantMap]),
		NestedAbsmax: stored(set[roleNestedAbsmax]),
		NestedMap:    stored(set[roleNestedMap]),
	}
}

func (t *Tensor) bindInt8(r *resolution, set [numRoles]*entry) {
	r.scheme = SchemeInt8
	if f := set[roleWeightFormat]; f != nil {
		if r.err = checkWeightFormat(f); r.err != nil {
			return
		}
	}
	d, err := quant.NewInt8(*stored(t.e), stored(set[roleSCB]))
	if err != nil {
		r.err = err
		return
	}
	r.dec = d
	r.parts = [quant.MaxParts]*entry{t.e, set[roleSCB]}
}

// checkWeightFormat reads the one byte that names the layout.
func checkWeightFormat(f *entry) error {
	data, err := f.read(quant.MaxState)
	if err != nil {
		return err
	}
	return atEntry(quant.CheckWeightFormat(data), f)
}

// atEntry gives an error without an offset that of the stored tensor it is
// about.
func atEntry(err error, e *entry) error {
	if re, ok := err.(*rule.Error); ok && re.Offset < 0 {
		return re.At(e.off)
	}
	return err
}

// read copies the entry's bytes, which must be at most limit, without touching
// the mapping.
func (e *entry) read(limit int64) ([]byte, error) {
	if e.n > limit {
		return nil, rule.New(rule.QuantJSON, "%s has %d bytes, want at most %d", e.name, e.n, limit).At(e.off)
	}
	buf := make([]byte, e.n)
	if e.view != nil || e.err != nil {
		data, err := e.window(0, e.n, &buf)
		return data, err
	}
	_, err := e.shard.file.ReadAt(buf, e.off)
	return buf, err
}
