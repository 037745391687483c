package safetensors

import (
	"errors"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nibble/internal/rule"
	"nibble/tensor"
)

// field is a set of the keys of an entry.
type field uint8

const (
	fieldDType field = 1 << iota
	fieldShape
	fieldOffsets
)

// fieldNames are the keys of an entry in the order of their bits.
var fieldNames = [...]string{"dtype", "shape", "data_offsets"}

// An entry is what a header says of one tensor.
type entry struct {
	Tensor       // Begin and End still relative to the data
	at     int64 // absolute offset of the name
	have   field // keys that were there
	good   field // keys whose value was right
}

// entry parses the value of a tensor's name, which is at offset at.
func (p *parser) entry(name string, at int64) error {
	depth := p.dec.StackDepth()
	if p.dec.PeekKind() != jsontext.KindBeginObject {
		p.unplaced = true
		return p.wrongKind(rule.HeaderJSON, name, "entry is %s, not an object")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	e := entry{Tensor: Tensor{Name: name}, at: at}
	for p.dec.PeekKind() != jsontext.KindEndObject {
		if err := p.field(&e); err != nil {
			return err
		}
	}
	if err := p.leave(depth); err != nil {
		return err
	}
	return p.finish(&e)
}

// field parses one key of an entry and its value.
func (p *parser) field(e *entry) error {
	key, at, err := p.str()
	if err != nil {
		return err
	}
	f := fieldNamed(key)
	if f == 0 || e.have&f != 0 {
		if err := p.strayKey(e, f, key, at); err != nil {
			return err
		}
		return p.skip()
	}
	e.have |= f
	depth := p.dec.StackDepth()
	switch f {
	case fieldDType:
		err = p.dtype(e)
	case fieldShape:
		err = p.shape(e)
	case fieldOffsets:
		err = p.offsets(e)
	}
	if err != nil {
		return err
	}
	return p.leave(depth)
}

func fieldNamed(key string) field {
	for i, name := range fieldNames {
		if key == name {
			return 1 << i
		}
	}
	return 0
}

// strayKey judges a key that is there for the second time, or that is none of
// the three.
func (p *parser) strayKey(e *entry, f field, key string, at int64) error {
	if f != 0 {
		return p.fail(rule.New(rule.DuplicateName, "duplicate key %q", key).At(at).For(e.Name))
	}
	for _, name := range fieldNames {
		if strings.EqualFold(key, name) {
			return p.fail(rule.New(rule.DuplicateName, "key %q differs from %q only by case", key, name).At(at).For(e.Name))
		}
	}
	return nil
}

func (p *parser) dtype(e *entry) error {
	if p.dec.PeekKind() != jsontext.KindString {
		return p.wrongKind(rule.HeaderJSON, e.Name, "dtype is %s, not a string")
	}
	name, at, err := p.str()
	if err != nil {
		return err
	}
	d, ok := tensor.FromSafetensors(name)
	if !ok {
		return p.fail(rule.New(rule.HeaderDType, "unknown dtype %q", clip(name)).At(at).For(e.Name))
	}
	e.DType = d
	e.good |= fieldDType
	return nil
}

func (p *parser) shape(e *entry) error {
	dims, _, err := p.counts(e, rule.HeaderShape, "shape")
	if err != nil || dims == nil {
		return err
	}
	e.Shape = dims
	e.good |= fieldShape
	return nil
}

func (p *parser) offsets(e *entry) error {
	v, at, err := p.counts(e, rule.Offsets, "data_offsets")
	if err != nil || v == nil {
		return err
	}
	switch {
	case len(v) != 2:
		return p.fail(rule.New(rule.Offsets, "data_offsets has %d values, not begin and end", len(v)).At(at).For(e.Name))
	case v[1] < v[0]:
		return p.fail(rule.New(rule.Offsets, "data_offsets end before they begin: [%d,%d]", v[0], v[1]).At(at).For(e.Name))
	case v[1] > math.MaxInt64-p.data:
		return p.fail(rule.New(rule.Offsets, "data_offsets [%d,%d] overflow", v[0], v[1]).At(at).For(e.Name))
	}
	e.Begin, e.End = v[0], v[1]
	e.good |= fieldOffsets
	return nil
}

// counts reads an array of non-negative integers and says where it begins. The
// list is never nil unless a problem was reported.
func (p *parser) counts(e *entry, id rule.ID, what string) (list []int64, at int64, err error) {
	if p.dec.PeekKind() != jsontext.KindBeginArray {
		return nil, 0, p.wrongKind(id, e.Name, what+" is %s, not an array of integers")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, 0, p.syntax(err)
	}
	at = p.base + p.dec.InputOffset() - 1
	list = []int64{}
	for p.dec.PeekKind() != jsontext.KindEndArray {
		v, vat, err := p.next()
		if err != nil {
			return nil, 0, err
		}
		n, ok := count(v)
		if !ok {
			return nil, 0, p.fail(rule.New(id, "%s holds %s, not an integer from 0 to 2^63-1", what, clip(v)).At(vat).For(e.Name))
		}
		list = append(list, n)
	}
	return list, at, nil
}

// finish checks a whole entry and adds its tensor.
func (p *parser) finish(e *entry) error {
	for i, name := range fieldNames {
		if e.have&(1<<i) == 0 {
			if err := p.fail(rule.New(rule.HeaderJSON, "entry has no %s", name).At(e.at).For(e.Name)); err != nil {
				return err
			}
		}
	}
	if err := p.measure(e); err != nil {
		return err
	}
	if e.good&fieldOffsets == 0 {
		p.unplaced = true
		return nil
	}
	e.Begin += p.data
	e.End += p.data
	p.tensors = append(p.tensors, e.Tensor)
	return nil
}

// measure compares the bytes that dtype and shape take with data_offsets.
func (p *parser) measure(e *entry) error {
	if e.good&fieldDType == 0 || e.good&fieldShape == 0 {
		return nil
	}
	n, err := byteSize(e.DType, e.Shape)
	switch {
	case err != nil:
		return p.fail(rule.New(rule.HeaderShape, "shape %s of %s: %w", clip(e.Shape.String()), e.DType.Safetensors(), err).At(e.at).For(e.Name))
	case e.good&fieldOffsets != 0 && n != e.End-e.Begin:
		return p.fail(rule.New(rule.HeaderShape, "shape %s of %s takes %d bytes, data_offsets [%d,%d] hold %d",
			clip(e.Shape.String()), e.DType.Safetensors(), n, e.Begin, e.End, e.End-e.Begin).At(e.at).For(e.Name))
	}
	return nil
}

// count reads a non-negative integer in plain decimal digits that fits an
// int64: a dimension or an offset.
func count(v []byte) (n int64, ok bool) {
	for _, c := range v {
		if c < '0' || c > '9' || n > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(v) > 0
}

// byteSize is the number of bytes that a tensor takes, or why there is none.
func byteSize(d tensor.DType, s tensor.Shape) (int64, error) {
	numel, ok := s.Numel()
	if !ok {
		return 0, errOverflow
	}
	if bits, ok := tensor.Mul(numel, int64(d.Bits())); ok && bits%8 != 0 {
		return 0, errPartial
	}
	n, ok := tensor.Bytes(numel, d)
	if !ok {
		return 0, errOverflow
	}
	return n, nil
}

var (
	errOverflow = errors.New("size overflows")
	errPartial  = errors.New("size is not a whole number of bytes")
)
