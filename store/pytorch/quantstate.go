package pytorch

import (
	"strings"

	"nibble/internal/rule"
	"nibble/tensor"
)

// stateParser decodes a quant state in any of its Python forms.
type stateParser struct {
	q     *Quantized
	index func(value) int // of a tensor among the listed ones, or -1
}

func newStateParser(index func(value) int) *stateParser {
	return &stateParser{newQuantized(Scheme4Bit), index}
}

// Blocksizes that old layouts leave unsaid: bitsandbytes' defaults of the time.
const (
	defaultNestedBlock = 256
	defaultBlock8      = 4096
)

// tensorFields are the fields of QuantState.as_dict that are tensors.
var tensorFields = []string{"absmax", "quant_map", "nested_absmax", "nested_quant_map"}

func bnbClass(g *global) bool {
	return g.module == "bitsandbytes" || strings.HasPrefix(g.module, "bitsandbytes.")
}

func isQuantState(v value) bool {
	o, ok := v.(*object)
	return ok && bnbClass(o.class) && o.class.name == "QuantState"
}

func isParameter(g *global) bool {
	return bnbClass(g) && (g.name == "Params4bit" || g.name == "Int8Params")
}

// stateful reports whether a value under the key of a quant state is one, sound
// or not.
func stateful(v value) bool {
	switch v := v.(type) {
	case *list, *tuple:
		return true
	case *dict:
		for _, e := range v.entries {
			switch k, _ := e.key.(string); {
			case k == "absmax", k == "quant_type", k == "blocksize", strings.HasPrefix(k, jsonPrefix):
				return true
			}
		}
	}
	return isQuantState(v)
}

// jsonPrefix begins the key of the JSON tensor in a packed state.
const jsonPrefix = "quant_state.bitsandbytes__"

// isState reports whether v, without a key that says so, is unmistakably the
// quant state of t.
func isState(t *tensorValue, v value) bool {
	switch v := v.(type) {
	case *dict:
		_, a := v.get("absmax")
		_, b := v.get("blocksize")
		return a && b
	case *list, *tuple:
		items, _ := sequence(v)
		return isList4(items) || isList8(items) && t.dtype == tensor.U8
	}
	return isQuantState(v)
}

// isList4 recognises [absmax, shape, dtype, blocksize, …].
func isList4(items []value) bool {
	if len(items) < 6 {
		return false
	}
	_, absmax := items[0].(*tensorValue)
	_, shape := sequence(items[1])
	_, block := items[3].(int64)
	return absmax && shape && block
}

// isList8 recognises [absmax, code, …].
func isList8(items []value) bool {
	if len(items) < 2 {
		return false
	}
	_, absmax := items[0].(*tensorValue)
	code, ok := items[1].(*tensorValue)
	return absmax && ok && code.dtype == tensor.F32 && len(code.shape) == 1 && code.shape[0] == 256
}

// readState walks the quant state v under key, so that its tensors are listed,
// and decodes it.
func (w *walker) readState(key, v value) *Quantized {
	from := len(w.f.Tensors)
	w.scope = make(map[*tensorValue]int)
	w.at(key, v)
	p := newStateParser(func(v value) int {
		if t, ok := v.(*tensorValue); ok {
			if i, ok := w.scope[t]; ok {
				return i
			}
		}
		return -1
	})
	p.state(v)
	w.scope = nil
	for i := from; i < len(w.f.Tensors); i++ {
		p.q.Companions = append(p.q.Companions, i)
	}
	return p.q
}

func (p *stateParser) fail(id rule.ID, format string, args ...any) {
	if p.q.Err == nil {
		p.q.Err = rule.New(id, format, args...)
	}
}

func (p *stateParser) state(v value) {
	switch v := v.(type) {
	case *dict:
		p.fields(v.get)
	case *object:
		p.object(v)
	default:
		items, _ := sequence(v)
		p.list(items)
	}
}

// fields decodes what QuantState.as_dict returns. Packed, everything but the
// tensors is in one of JSON.
func (p *stateParser) fields(get func(string) (value, bool)) {
	for _, t := range []string{"nf4", "fp4"} {
		if v, ok := get(jsonPrefix + t); ok {
			p.q.JSON = p.index(v)
		}
	}
	field := func(name string) value { v, _ := get(name); return v }
	p.tensor(&p.q.Absmax, "absmax", field("absmax"))
	p.tensor(&p.q.QuantMap, "quant_map", field("quant_map"))
	if p.q.JSON < 0 {
		p.quantType(field("quant_type"))
		p.blockSize(&p.q.BlockSize, "blocksize", field("blocksize"))
		p.dtype(&p.q.DType, field("dtype"))
		p.shape(field("shape"))
	}
	for _, name := range []string{"nested_absmax", "nested_quant_map", "nested_blocksize", "nested_offset"} {
		if field(name) != nil {
			p.q.Nested = true
		}
	}
	if !p.q.Nested {
		return
	}
	p.tensor(&p.q.NestedAbsmax, "nested_absmax", field("nested_absmax"))
	p.tensor(&p.q.NestedMap, "nested_quant_map", field("nested_quant_map"))
	if p.q.JSON < 0 {
		p.blockSize(&p.q.NestedBlockSize, "nested_blocksize", field("nested_blocksize"))
		p.dtype(&p.q.NestedDType, field("nested_dtype"))
		p.offset(field("nested_offset"))
	}
}

// object decodes a pickled QuantState by its attributes.
func (p *stateParser) object(o *object) {
	attrs := o.attrs()
	if attrs == nil {
		p.fail(rule.QuantJSON, "a QuantState without attributes")
		return
	}
	field := func(name string) value { v, _ := attrs.get(name); return v }
	p.tensor(&p.q.Absmax, "absmax", field("absmax"))
	p.tensor(&p.q.QuantMap, "code", field("code"))
	p.quantType(field("quant_type"))
	p.blockSize(&p.q.BlockSize, "blocksize", field("blocksize"))
	p.dtype(&p.q.DType, field("dtype"))
	p.shape(field("shape"))
	if s := field("state2"); s != nil {
		p.nested(field("offset"), s)
	}
}

// list decodes the layouts of 2023:
//
//	0.39       [absmax, shape, dtype, blocksize, nested, quant_type]
//	0.40, 0.41 the same and the code table; so did Baichuan 2
//	8-bit      [absmax, code], or [absmax, code, blocksize, nested, (dtype,) offset, state2]
//
// where nested is None or [offset, state2].
func (p *stateParser) list(items []value) {
	if isList8(items) {
		p.list8(items)
		return
	}
	if len(items) != 6 && len(items) != 7 {
		p.fail(rule.QuantJSON, "quant state is a list of %d items, not of 6 or 7", len(items))
		return
	}
	p.tensor(&p.q.Absmax, "absmax", items[0])
	p.shape(items[1])
	p.dtype(&p.q.DType, items[2])
	p.blockSize(&p.q.BlockSize, "blocksize", items[3])
	p.quantType(items[5])
	if len(items) == 7 {
		p.tensor(&p.q.QuantMap, "code", items[6])
	}
	if items[4] == nil {
		return
	}
	n, ok := sequence(items[4])
	if !ok || len(n) != 2 {
		p.fail(rule.Nested, "nested part of the quant state is not a pair")
		return
	}
	p.nested(n[0], n[1])
}

func (p *stateParser) list8(items []value) {
	p.q.Scheme = SchemeBlockwise8
	p.tensor(&p.q.Absmax, "absmax", items[0])
	p.tensor(&p.q.QuantMap, "code", items[1])
	p.q.BlockSize = defaultBlock8
	if len(items) == 2 {
		return
	}
	if len(items) != 6 && len(items) != 7 {
		p.fail(rule.QuantJSON, "8-bit quant state is a list of %d items, not of 2, 6 or 7", len(items))
		return
	}
	p.blockSize(&p.q.BlockSize, "blocksize", items[2])
	if len(items) == 7 {
		p.dtype(&p.q.DType, items[4])
	}
	if items[3] == true {
		p.nested(items[len(items)-2], items[len(items)-1])
	}
}

// nested decodes the statistics of a quantized absmax: its offset and its own
// state, an object or one of the lists [absmax, code or None, …] whose further
// items are told apart by their types.
func (p *stateParser) nested(offset, state value) {
	p.q.Nested = true
	p.offset(offset)
	if isQuantState(state) {
		attrs := state.(*object).attrs()
		if attrs == nil {
			p.fail(rule.Nested, "a nested QuantState without attributes")
			return
		}
		field := func(name string) value { v, _ := attrs.get(name); return v }
		p.tensor(&p.q.NestedAbsmax, "state2.absmax", field("absmax"))
		p.tensor(&p.q.NestedMap, "state2.code", field("code"))
		p.blockSize(&p.q.NestedBlockSize, "state2.blocksize", field("blocksize"))
		p.dtype(&p.q.NestedDType, field("dtype"))
		return
	}
	items, ok := sequence(state)
	if !ok || len(items) < 2 {
		p.fail(rule.Nested, "nested quant state of %s", typeName(state))
		return
	}
	p.tensor(&p.q.NestedAbsmax, "nested absmax", items[0])
	if items[1] != nil {
		p.tensor(&p.q.NestedMap, "nested code", items[1])
	}
	p.q.NestedBlockSize = defaultNestedBlock
	for _, it := range items[2:] {
		switch it := it.(type) {
		case int64:
			p.q.NestedBlockSize = it
		case tensor.DType:
			p.dtype(&p.q.NestedDType, it)
		}
	}
}

// tensor sets the index of a tensor that must be there.
func (p *stateParser) tensor(to *int, name string, v value) {
	if *to = p.index(v); *to < 0 {
		p.fail(rule.Companion, "missing companion %q", name)
	}
}

func (p *stateParser) quantType(v value) {
	switch v := v.(type) {
	case string:
		p.q.QuantType = readable(v)
	case nil:
		p.q.Scheme = SchemeBlockwise8
	default:
		p.fail(rule.QuantType, "quant_type of type %s", typeName(v))
	}
}

func (p *stateParser) blockSize(to *int64, name string, v value) {
	n, ok := v.(int64)
	if !ok {
		p.fail(rule.QuantType, "%s of type %s", name, typeName(v))
	}
	*to = n
}

func (p *stateParser) dtype(to *string, v value) {
	switch v := v.(type) {
	case tensor.DType:
		*to = v.Torch()
	case string:
		*to = readable(strings.TrimPrefix(v, "torch."))
	case *global:
		*to = v.name
	case nil:
	default:
		p.fail(rule.QuantShape, "dtype of type %s", typeName(v))
	}
}

func (p *stateParser) shape(v value) {
	if v == nil {
		return
	}
	items, ok := sequence(v)
	if !ok || len(items) > maxRank {
		p.fail(rule.QuantShape, "shape of type %s", typeName(v))
		return
	}
	p.q.HasShape = true
	p.q.Shape = make(tensor.Shape, len(items))
	for i, it := range items {
		if p.q.Shape[i], ok = it.(int64); !ok {
			p.fail(rule.QuantShape, "shape with a %s", typeName(it))
		}
	}
}

func (p *stateParser) offset(v value) {
	switch v := v.(type) {
	case *tensorValue:
		p.tensor(&p.q.OffsetTensor, "offset", v)
	case float64:
		p.q.NestedOffset, p.q.HasOffset = v, true
	case int64:
		p.q.NestedOffset, p.q.HasOffset = float64(v), true
	default:
		p.fail(rule.Nested, "nested offset of type %s", typeName(v))
	}
}
