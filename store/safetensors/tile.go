package safetensors

import (
	"cmp"
	"strconv"

	"nibble/internal/rule"
)

// byOffset orders tensors by their bytes. Of two that begin together, the one
// without bytes comes first, as it must if they are to tile.
func byOffset(a, b Tensor) int {
	return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
}

// tile checks that the tensors, which are in the order of their bytes, cover
// the file from the header to its end, each byte once.
func (p *parser) tile() error {
	covered := p.data
	last := -1 // index of the tensor that ends at covered
	for i := range p.tensors {
		t := &p.tensors[i]
		if err := p.adjoin(t, last, covered); err != nil {
			return err
		}
		if t.End >= covered {
			covered, last = t.End, i
		}
	}
	if p.unplaced {
		return nil
	}
	return p.length(covered)
}

// adjoin checks that t begins at the byte covered, where the tensors before it
// end.
func (p *parser) adjoin(t *Tensor, last int, covered int64) error {
	switch {
	case t.Begin < covered:
		before := p.tensors[last].Name
		return p.fail(rule.New(rule.Offsets, "bytes [%d,%d) overlap those of %s", t.Begin, min(t.End, covered), strconv.Quote(before)).At(t.Begin).For(t.Name))
	case t.Begin > covered && !p.unplaced:
		return p.fail(rule.New(rule.Offsets, "hole of %d bytes before it: bytes [%d,%d) belong to no tensor", t.Begin-covered, covered, t.Begin).At(covered).For(t.Name))
	}
	return nil
}

// length compares the bytes that the header covers with those of the file.
func (p *parser) length(covered int64) error {
	switch {
	case covered > p.size:
		return p.fail(rule.New(rule.Length, "%w: file has %d bytes, header covers %d", rule.ErrTruncated, p.size, covered).At(p.size))
	case covered < p.size:
		return p.fail(rule.New(rule.Length, "%d trailing bytes: file has %d bytes, header covers %d", p.size-covered, p.size, covered).At(covered))
	}
	return nil
}
