package main

import (
	"strings"
	"testing"
)

// What a torch file holds beside its tensors is listed, names quoted where they
// cannot be seen.
func TestInspectListsOpaqueValues(t *testing.T) {
	r := &inspection{Opaque: []opaqueRow{{Name: "opt\n", Class: "deepspeed.ZeroStageEnum", File: "m.pt"}}}
	if want := "opaque \"opt\\n\" = deepspeed.ZeroStageEnum\n"; !strings.Contains(r.footer(), want) {
		t.Errorf("got %q, want %q in it", r.footer(), want)
	}
}

func TestSchemeText(t *testing.T) {
	block := int64(64)
	for want, row := range map[string]tensorRow{
		"plain":         {Scheme: "plain"},
		"fp4/64":        {Scheme: "fp4", BlockSize: &block},
		"nf4/64 nested": {Scheme: "nf4", BlockSize: &block, Nested: true},
	} {
		if got := row.schemeText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
