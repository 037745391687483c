package store

import (
	"slices"
	"testing"
)

// Names as the common families write them, and the layers that a reader of
// their model code would expect.
func TestGroupLayers(t *testing.T) {
	for _, c := range []struct {
		what  string
		names []string
		want  []string // layer names, in order
	}{
		{"llama, unordered, with a gap", []string{
			"lm_head.weight", "model.embed_tokens.weight", "model.layers.10.mlp.up_proj.weight",
			"model.layers.2.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight", "model.norm.weight",
		}, []string{"embeddings", "model.layers.0", "model.layers.2", "model.layers.10", "head"}},
		{"gpt2", []string{"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.1.attn.c_attn.weight", "ln_f.weight"},
			[]string{"embeddings", "h.0", "h.1", "head"}},
		{"bert", []string{"bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.output.dense.weight", "bert.pooler.dense.weight"},
			[]string{"embeddings", "bert.encoder.layer.0", "head"}},
		{"t5: the block counts, not the layer inside it; encoder before decoder as in the file", []string{
			"shared.weight", "encoder.block.0.layer.0.SelfAttention.q.weight", "encoder.block.1.layer.1.DenseReluDense.wi.weight",
			"decoder.block.0.layer.2.DenseReluDense.wi.weight", "lm_head.weight",
		}, []string{"embeddings", "encoder.block.0", "encoder.block.1", "decoder.block.0", "head"}},
		{"experts do not count", []string{
			"model.layers.0.mlp.experts.0.w1.weight", "model.layers.0.mlp.experts.1.w1.weight", "model.layers.1.mlp.gate.weight",
		}, []string{"model.layers.0", "model.layers.1"}},
		{"experts alone", []string{"mlp.experts.0.w1", "mlp.experts.1.w1"}, []string{"all"}},
		{"no layer word: what two numbers share", []string{
			"conv1.weight", "layer1.0.conv1.weight", "layer1.1.conv1.weight", "layer2.0.conv1.weight", "fc.weight",
		}, []string{"layer1.0", "layer1.1", "head"}},
		{"flux: two prefixes", []string{"single_blocks.0.linear1.weight", "single_blocks.1.linear1.weight", "double_blocks.0.img.weight", "double_blocks.1.img.weight"},
			[]string{"single_blocks.0", "single_blocks.1", "double_blocks.0", "double_blocks.1"}},
		{"digits as they are written, in numeric order", []string{"b.block.1.r", "b.block.010.q", "b.block.007.q", "b.block.01.q", "b.block.01.r"},
			[]string{"b.block.1", "b.block.01", "b.block.007", "b.block.010"}},
		{"a bare Sequential", []string{"0.weight", "0.bias", "2.weight"}, []string{"0", "2"}},
		{"one number is no count", []string{"conv.0.weight", "fc.bias"}, []string{"all"}},
		{"no numbers", []string{"w", "b"}, []string{"all"}},
		{"nothing", nil, nil},
		{"odd names", []string{"", ".", "..", "layers", "layers.", "layers.x", "a\x00b", "layers.-1.w", "layers.+1.w"}, []string{"all"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var ts []*Tensor
			for _, n := range c.names {
				ts = append(ts, &Tensor{name: n})
			}
			var got []string
			members := 0
			for _, s := range groupLayers(ts) {
				got = append(got, s.name)
				members += len(s.members)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("layers %q, want %q", got, c.want)
			}
			if members != len(ts) {
				t.Errorf("%d tensors in layers, want %d", members, len(ts))
			}
		})
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"model.*", "model.layers.0.weight", true},
		{"*.weight", "a/b.weight", true},
		{"*.weight", "a.weight.absmax", false},
		{"layers.?.w", "layers.1.w", true},
		{"layers.?.w", "layers.10.w", false},
		{"layers.[0-3].w", "layers.2.w", true},
		{"layers.[!0-3].w", "layers.2.w", false},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{"α*", "αβ", true},
		{"a.b", "axb", false},
		{"*", "two\nlines", true},
	} {
		re, err := globs([]string{c.glob})
		if err != nil {
			t.Fatal(err)
		}
		if got := re.MatchString(c.name); got != c.want {
			t.Errorf("%q on %q: %v, want %v", c.glob, c.name, got, c.want)
		}
	}
	if _, err := globs([]string{"a[b"}); err == nil {
		t.Error("an open class is no error")
	}
}

func TestNearest(t *testing.T) {
	c := newCatalog(nil)
	for _, n := range []string{"model.layers.0.q_proj.weight", "model.layers.1.q_proj.weight", "lm_head.weight", "x"} {
		c.tensors = append(c.tensors, Tensor{name: n})
	}
	if got := c.nearest("model.layers.0.q_prj.weight"); len(got) == 0 || got[0] != "model.layers.0.q_proj.weight" {
		t.Errorf("nearest is %q", got)
	}
	if got := c.nearest("lm_head"); len(got) == 0 || got[0] != "lm_head.weight" {
		t.Errorf("nearest is %q", got)
	}
	if got := c.nearest("entirely different and long"); len(got) != 0 {
		t.Errorf("nearest is %q, want none", got)
	}
}
