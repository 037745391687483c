package store

import (
	"context"
	"strings"

	"nibble/internal/rule"
	"nibble/mmap"
	"nibble/quant"
	"nibble/tensor"
)

// bind finds the decoder of t and the stored parts that feed it.
func (t *Tensor) bind(ctx context.Context) *resolution {
	r := &resolution{scheme: SchemePlain, shape: t.e.shape}
	if r.err = t.e.err; r.err != nil {
		return r
	}
	switch {
	case t.object != nil:
		t.object.bind(ctx, t, r)
	case len(t.companions) == 0:
		r.dec = quant.NewPlain(t.e.numel, t.e.dtype)
		r.parts[0] = t.e
	default:
		t.bindCompanions(ctx, r)
	}
	return r
}

// bindCompanions tells the two families apart: LLM.int8() names its statistics
// by module, 4-bit by parameter.
func (t *Tensor) bindCompanions(ctx context.Context, r *resolution) {
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
		t.bindInt8(ctx, r, set)
	default:
		t.bindFourBit(ctx, r, set)
	}
}

// companionSet sorts the companions by role. Two of one role are an error, as
// is one that cannot be used.
func (t *Tensor) companionSet() (set [numRoles]*entry, err error) {
	for _, c := range t.companions {
		if set[c.role] != nil {
			return set, rule.New(rule.QuantClash, "two quant states: %q and %q", set[c.role].name, c.e.name)
		}
		set[c.role] = c.e
	}
	return set, usable(t.e, set)
}

// usable refuses a quantized tensor with a part that cannot be read, or that
// repeats its bytes: what is computed from the lengths of such parts would be
// no claim about the file.
func usable(packed *entry, set [numRoles]*entry) error {
	for _, e := range append(set[:], packed) {
		switch {
		case e == nil:
		case e.err != nil:
			return rule.New(rule.Companion, "missing companion %q: %w", e.name, e.err)
		case e.expanded:
			return rule.New(rule.CompanionLen, "%q is a view that repeats the elements of its storage", e.name)
		}
	}
	return nil
}

// stored is what quant asks to know of a companion; nil stays nil.
func stored(e *entry) *quant.Stored {
	if e == nil {
		return nil
	}
	return &quant.Stored{DType: e.dtype, Shape: e.shape, Bytes: e.n}
}

func (t *Tensor) bindFourBit(ctx context.Context, r *resolution, set [numRoles]*entry) {
	r.scheme = SchemeUnknown
	if set[roleState] == nil {
		r.err = rule.New(rule.Companion, "missing companion %q", t.name+stateMark+"…")
		return
	}
	r.scheme = fourBitScheme(stateType(set[roleState].name))
	state, err := parseState(ctx, set[roleState])
	if err != nil {
		r.err = err
		return
	}
	t.bindState(r, state, set)
}

// parseState reads a quant_state tensor.
func parseState(ctx context.Context, e *entry) (*quant.State, error) {
	data, err := e.read(ctx, quant.MaxState)
	if err != nil {
		return nil, err
	}
	state, err := quant.ParseState(data)
	if err != nil {
		return nil, atEntry(err, e)
	}
	state.NameType = stateType(e.name)
	return state, nil
}

// stateType is the quant type in the name of a quant_state tensor.
func stateType(name string) string {
	i := strings.LastIndex(name, stateMark)
	if i < 0 {
		return ""
	}
	name, _, _ = strings.Cut(name[i+len(stateMark):], "#")
	return name
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
	r.parts = [quant.MaxParts]*entry{t.packed(), set[roleAbsmax], set[roleNestedAbsmax], set[roleNestedMap]}
}

// packed is the stored tensor of t: of a quantized one, its bytes as codes.
func (t *Tensor) packed() *entry {
	if len(t.companions) == 0 && t.object == nil {
		return t.e
	}
	return t.e.asCodes()
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

func (t *Tensor) bindInt8(ctx context.Context, r *resolution, set [numRoles]*entry) {
	r.scheme = SchemeInt8
	if f := set[roleWeightFormat]; f != nil {
		if r.err = checkWeightFormat(ctx, f); r.err != nil {
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
func checkWeightFormat(ctx context.Context, f *entry) error {
	if f.n != 1 {
		return f.place(rule.New(rule.WeightFormat, "weight_format has %d bytes, want 1", f.n))
	}
	data, err := f.read(ctx, 1)
	if err != nil {
		return err
	}
	return atEntry(quant.CheckWeightFormat(data), f)
}

// atEntry gives an error without an offset that of the stored tensor it is
// about.
func atEntry(err error, e *entry) error {
	if re, ok := err.(*rule.Error); ok && re.Offset < 0 {
		return e.place(re)
	}
	return err
}

// read copies the entry's bytes, which must be at most limit: by descriptor, or
// under the guard where they are gathered from a mapping.
func (e *entry) read(ctx context.Context, limit int64) ([]byte, error) {
	if e.n > limit {
		return nil, e.place(rule.New(rule.QuantJSON, "%q has %d bytes, want at most %d", e.name, e.n, limit))
	}
	if e.err != nil {
		return nil, e.err
	}
	buf := make([]byte, e.n)
	if e.view == nil {
		_, err := e.shard.file.ReadAt(buf, e.off)
		return buf, err
	}
	err := e.guarded(func() error {
		var scratch []byte
		data, err := e.window(ctx, 0, e.n, &scratch)
		copy(buf, data)
		return err
	})
	if err == nil {
		err = e.check(0, e.n)
	}
	return buf, err
}

// place says in which file and where the stored tensor is that err is about.
func (e *entry) place(err *rule.Error) *rule.Error {
	err.Path = e.shard.file.Path()
	if e.view == nil {
		err.Offset = e.off
	}
	return err
}

// guarded runs f, which may touch the mapping, under the guard.
func (e *entry) guarded(f func() error) (err error) {
	if fault := mmap.Guard([]*mmap.File{e.shard.file}, func() { err = f() }); fault != nil {
		return fault
	}
	return err
}
