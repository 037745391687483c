package quant

import (
	"math"

	"nibble/internal/rule"
	"nibble/tensor"
)

// Findings are what is odd about a four-bit tensor without making it wrong:
// each is named by the rule that it bends. NewFourBit has accepted st and p.
func (p *FourBitParts) Findings(st *State) []*rule.Error {
	var found []*rule.Error
	if st.Nested != nil && p.Absmax.DType != tensor.U8 {
		found = append(found, rule.New(rule.Nested, "quant_state has nested fields beside a plain absmax of %v; they are ignored", p.Absmax.DType))
	}
	// [1,1] is the usual layout of one byte.
	if s := p.Packed.Shape; len(s) > 1 && s[0] == 1 && s[1] != 1 && len(st.Shape) == 2 {
		found = append(found, rule.New(rule.CompanionLen, "packed shape is %v: bitsandbytes returns such a matrix transposed; the shape %v of the quant_state is followed", s, st.Shape))
	}
	return found
}

// CheckQuantMap compares the content of a stored quant_map with the built-in
// table that decoding uses instead (BNB-003). It returns nil when they agree,
// to the precision that the map is stored in. NewFourBit has accepted st and
// m.
func CheckQuantMap(st *State, m *Stored, content []byte) *rule.Error {
	var values [16]float32
	floatPart{m.DType}.read(values[:], content, 0)
	for i, want := range codeTable(st.QuantType) {
		if want = roundTo(want, m.DType); values[i] != want {
			return rule.New(rule.QuantMap, "quant_map[%d] is %v; the %s table has %v", i, values[i], st.QuantType, want)
		}
	}
	return nil
}

// CheckScales looks for scales that are not finite, or negative where no
// arithmetic made them so (BNB-106), and returns nil when there are none.
// Nested scales of blocks near zero do come out negative: that is how
// bitsandbytes rounds. parts are the whole parts.
func (d *FourBit) CheckScales(parts [][]byte) *rule.Error { return d.checkScales(parts[1:]) }

// CheckScales is as that of FourBit.
func (d *Blockwise) CheckScales(parts [][]byte) *rule.Error {
	s := d.scaleParts(parts)
	return d.checkScales(s[:])
}

// CheckScales looks for row statistics that are not finite or negative
// (BNB-106), and returns nil when there are none. parts are the whole parts.
func (d *Int8) CheckScales(parts [][]byte) *rule.Error {
	c := scaleCheck{of: d.rows}
	var buf [group]float32
	for row := int64(0); row < d.rows; row += group {
		s := buf[:min(group, d.rows-row)]
		d.scb.read(s, parts[1], int(row))
		c.add(s, row)
	}
	return c.finding("SCB of row")
}

func (b *blocked) checkScales(parts [][]byte) *rule.Error {
	c := scaleCheck{of: b.Blocks(), signed: b.Nested()}
	var g groups
	for g.open(b, activeKernel(), 0, b.numel, parts); g.next(); {
		c.add(g.scales(), g.lo/b.size)
	}
	return c.finding("scale of block")
}

// scaleCheck counts bad scales and remembers the first.
type scaleCheck struct {
	of     int64 // scales in all
	signed bool  // negative scales are fine
	bad    int64
	first  int64
	value  float32
}

func (c *scaleCheck) add(scales []float32, first int64) {
	for i, f := range scales {
		finite := math.Float32bits(f)&0x7f800000 != 0x7f800000
		if finite && (f >= 0 || c.signed) {
			continue
		}
		if c.bad++; c.bad == 1 {
			c.first, c.value = first+int64(i), f
		}
	}
}

func (c *scaleCheck) finding(what string) *rule.Error {
	if c.bad == 0 {
		return nil
	}
	return rule.New(rule.ScaleValue, "%s %d is %v; %d of %d are negative or not finite", what, c.first, c.value, c.bad, c.of)
}
