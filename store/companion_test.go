package store

import "testing"

func TestCompanionOf(t *testing.T) {
	for _, c := range []struct {
		name, base string
		r          role
	}{
		{"w.absmax", "w", roleAbsmax},
		{"a.b.nested_quant_map", "a.b", roleNestedMap},
		{"m.SCB", "m.weight", roleSCB},
		{"SCB", "weight", roleSCB},
		{"w.quant_state.bitsandbytes__nf4", "w", roleState},
		{"w", "", roleNone},
		{"absmax", "", roleNone},
		// A parameter may have an empty name.
		{".absmax", "", roleAbsmax},
		{".quant_state.bitsandbytes__fp4", "", roleState},
		// The second of two colliding paths takes its companions along.
		{"w.absmax#2", "w#2", roleAbsmax},
		{"w.quant_state.bitsandbytes__nf4#12", "w#12", roleState},
		{"m.weight_format#2", "m.weight#2", roleWeightFormat},
		{"w#2", "", roleNone},
		{"w#2.absmax", "w#2", roleAbsmax},
		{"w.absmax#", "w#", roleAbsmax},
		{"w.absmax#x", "", roleNone},
	} {
		if base, r := companionOf(c.name); base != c.base || r != c.r {
			t.Errorf("%q: %q, %v; want %q, %v", c.name, base, r, c.base, c.r)
		}
	}
}
