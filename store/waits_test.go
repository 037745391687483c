package store

import (
	"context"
	"testing"

	"nibble/tensor"
)

// A request decodes itself what is not likely to wait: only what was read whole
// before, from a mapping and in place.
func TestWaits(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		path, name string
		cfg        Config
		want       bool // once all of it was read
	}{
		{"../testdata/golden/model_single/model.safetensors", "model.layers.0.mlp.up_proj.weight", Config{}, false},
		{"../testdata/golden/model_single/model.safetensors", "model.layers.0.mlp.up_proj.weight", Config{SourcePages: "drop"}, true},
		{"../testdata/golden/model_single/model.safetensors", "model.layers.0.mlp.up_proj.weight", Config{Backend: "pread"}, true},
		{"../testdata/golden/model_single/model.safetensors", "model.layers.0.mlp.up_proj.weight", Config{CopyPlain: true}, false},
		{"../testdata/golden/pt/views.pt", "base_t", Config{}, true},
	} {
		st, err := Open(ctx, c.path, WithConfig(c.cfg))
		if err != nil {
			t.Fatal(err)
		}
		h, err := st.Tensor(c.name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := h.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.Shape.Numel()
		dst := make([]byte, 4*n)
		waits := func() bool { return item(h, h.res.Load(), tensor.F32).Waits }
		if !waits() {
			t.Errorf("%s of %s: before anything was read", c.name, c.path)
		}
		if err := h.Read(ctx, dst[:4*8], tensor.F32, 0, 8); err != nil {
			t.Fatal(err)
		}
		if !waits() {
			t.Errorf("%s of %s: after some elements were read", c.name, c.path)
		}
		l, err := h.Raw(ctx) // decoded, where plain tensors are copied
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		if !waits() {
			t.Errorf("%s of %s: after its codes were read", c.name, c.path)
		}
		if err := h.Read(ctx, dst, tensor.F32, 0, n); err != nil {
			t.Fatal(err)
		}
		if got := waits(); got != c.want {
			t.Errorf("%s of %s, %+v: %v; want %v", c.name, c.path, c.cfg, got, c.want)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}
