package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sbinet/npyio/npy"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// npyio, which did not write it, reads back shape, dtype and values of what cat
// prints. The values are those of bitsandbytes in testdata/golden/manifest.json.
func TestNumPyFile(t *testing.T) {
	model := filepath.Join("..", "..", "testdata", "golden", "model_single")
	plain := filepath.Join("..", "..", "testdata", "golden", "st4", "plain_dtypes.safetensors")
	read := func(args ...string) *npy.Reader {
		t.Helper()
		var out bytes.Buffer
		if code := run(context.Background(), append([]string{"cat", "--format", "npy"}, args...), &app{stdout: &out, stderr: io.Discard}); code != exitOK {
			t.Fatalf("%q: exit code %d", args, code)
		}
		if at := bytes.IndexByte(out.Bytes(), '\n') + 1; at%64 != 0 {
			t.Errorf("%q: values start at byte %d, which is not aligned to 64", args, at)
		}
		r, err := npy.NewReader(&out)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return r
	}

	r := read(model, "model.layers.0.self_attn.q_proj.weight", "--dtype", "f32", "--rows", "0:2")
	if diff := cmp.Diff([]int{2, 64}, r.Header.Descr.Shape); diff != "" || r.Header.Descr.Type != "<f4" {
		t.Errorf("q_proj: %s %s", r.Header.Descr.Type, diff)
	}
	var f32 []float32
	if err := r.Read(&f32); err != nil {
		t.Fatal(err)
	}
	want := []float32{0.08946725726127625, -0.06279971450567245, 0.05373522266745567, 0.08946725726127625}
	if diff := cmp.Diff(want, f32[:4]); diff != "" || len(f32) != 128 {
		t.Errorf("q_proj: %d values, %s", len(f32), diff)
	}

	// NumPy has no bfloat16: the exact values, as float32.
	r, f32 = read(plain, "bf16"), nil
	if err := r.Read(&f32); err != nil {
		t.Fatal(err)
	}
	want = []float32{-0.015625, 0.0111083984375, -0.026611328125, 0.0086669921875, 0.0211181640625, -0.0086669921875}
	if diff := cmp.Diff(want, f32); diff != "" {
		t.Errorf("bf16: %s", diff)
	}

	var i64 []int64
	r = read(plain, "i64")
	if err := r.Read(&i64); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{-3, -2, -1, 0, 1, 2, 3}, i64); diff != "" || cmp.Diff([]int{7}, r.Header.Descr.Shape) != "" {
		t.Errorf("i64: shape %v, %s", r.Header.Descr.Shape, diff)
	}

	// A scalar has the shape ().
	r = read(plain, "scalar")
	if len(r.Header.Descr.Shape) != 0 {
		t.Errorf("scalar: shape %v", r.Header.Descr.Shape)
	}
}

// NumPy has 64 dimensions: a file with more could not be read.
func TestNumPyDimensions(t *testing.T) {
	for _, c := range []struct {
		dims, code int
	}{{64, exitOK}, {65, exitUsage}} {
		shape := make(tensor.Shape, c.dims)
		for i := range shape {
			shape[i] = 1
		}
		layout, err := safetensors.Encode([]safetensors.Tensor{{Name: "w", DType: tensor.U8, Shape: shape}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if err := os.WriteFile(path, append(layout.Header, 7), 0o666); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := run(context.Background(), []string{"cat", "--format", "npy", path, "w"}, &app{stdout: &out, stderr: io.Discard}); code != c.code || (out.Len() > 0) != (code == exitOK) {
			t.Errorf("%d dimensions: exit code %d and %d bytes, want %d", c.dims, code, out.Len(), c.code)
		}
	}
}
