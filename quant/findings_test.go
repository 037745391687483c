package quant

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

// The golden file whose quant_map was altered must be found; its neighbours'
// maps, in whatever precision, must not.
func TestCheckQuantMap(t *testing.T) {
	altered := readCheckpoint(t, filepath.Join(golden, "hostile/quant/quant_map_values.safetensors"))
	m := altered["w.quant_map"]
	if e := CheckQuantMap(&State{QuantType: "nf4"}, &m.stored, m.data); e == nil || e.Rule != rule.QuantMap {
		t.Errorf("altered map: got %v", e)
	}
	for _, typ := range []string{"nf4", "fp4"} {
		table := codeTable(typ)
		for _, dt := range floats {
			content := make([]byte, 16*dt.Size())
			tensor.Narrow(content, dt, table[:])
			tensor.LittleEndian(content, content, dt.Size())
			if e := CheckQuantMap(&State{QuantType: typ}, vector(dt, 16), content); e != nil {
				t.Errorf("%s as %v: %v", typ, dt, e)
			}
			other := map[string]string{"nf4": "fp4", "fp4": "nf4"}[typ]
			if e := CheckQuantMap(&State{QuantType: other}, vector(dt, 16), content); e == nil {
				t.Errorf("%s map passes for %s", typ, other)
			}
		}
	}
}

// checked is what CheckScales is called on.
type checked interface {
	Decoder
	CheckScales(parts [][]byte) *rule.Error
}

func TestCheckScales(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, s := range []sample{
		fourBitSample(t, "nf4", 32, 32*300, false, plainScales),
		fourBitSample(t, "nf4", 32, 32*300, true, plainScales),
		blockwiseSample(t, 64, 64*300, false, plainScales),
		blockwiseSample(t, 64, 64*300, true, plainScales),
		int8Sample(t, 300, 8, plainScales),
	} {
		d := s.d.(checked)
		if e := d.CheckScales(s.parts); e != nil {
			t.Errorf("%s: %v", s.name, e)
		}
		// The last part of scales as numbers: absmax, SCB or nested absmax.
		numbers := s.parts[1]
		nested := false
		if b, ok := s.d.(interface{ Nested() bool }); ok && b.Nested() {
			numbers, nested = s.parts[len(s.parts)-2], true
		}
		good := bytes.Clone(numbers[len(numbers)-4:])
		for _, bad := range []float32{inf, -inf, nan, -1} {
			copy(numbers[len(numbers)-4:], floatBytes([]float32{bad}))
			e := d.CheckScales(s.parts)
			if want := !(nested && bad == -1); (e != nil) != want {
				t.Errorf("%s: scale %v: got %v", s.name, bad, e)
			}
			if e != nil && e.Rule != rule.ScaleValue {
				t.Errorf("%s: rule %s", s.name, e.Rule)
			}
		}
		copy(numbers[len(numbers)-4:], good)
	}
}

func TestFindings(t *testing.T) {
	st, p := fourBitClaims(false)
	p.Packed.Shape = tensor.Shape{35, 1}
	if found := p.Findings(st); len(found) != 0 {
		t.Errorf("an ordinary tensor: %v", found)
	}
	p.Packed.Shape = tensor.Shape{1, 35}
	st.Nested = &Nested{}
	found := p.Findings(st)
	if len(found) != 2 || found[0].Rule != rule.Nested || found[1].Rule != rule.CompanionLen {
		t.Errorf("got %v; want nested fields and a packed row", found)
	}
}
