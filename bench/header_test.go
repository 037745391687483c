package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// The header of 100,000 tensors is parsed, validated and indexed; next to it,
// encoding/json only decodes it.
func BenchmarkHeader(b *testing.B) {
	const tensors = 100_000
	layout := header(b, tensors)
	text := []byte(strings.TrimRight(string(layout.Header[8:]), " "))
	run := func(name string, parse func() error) {
		b.Run(fmt.Sprintf("impl=%s/tensors=%d", name, tensors), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := parse(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tensors, "ns/tensor")
		})
	}
	run("nibble", func() error {
		_, err := safetensors.Parse(text, layout.Size-data(layout), layout.Size)
		return err
	})
	run("encoding-json", func() error {
		var entries map[string]struct {
			DType   string   `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		return json.Unmarshal(text, &entries)
	})
}

// data is the number of bytes behind the header.
func data(l *safetensors.Layout) int64 { return l.Size - int64(len(l.Header)) }

// header lays out a mixture of experts, with names as long as such models have
// them.
func header(b *testing.B, tensors int) *safetensors.Layout {
	b.Helper()
	ts := make([]safetensors.Tensor, tensors)
	for i := range ts {
		ts[i] = safetensors.Tensor{
			Name:  fmt.Sprintf("model.layers.%d.mlp.experts.%d.down_proj.weight", i/1000, i%1000),
			DType: tensor.BF16, Shape: tensor.Shape{2048, 768},
		}
	}
	layout, err := safetensors.Encode(ts, nil)
	if err != nil {
		b.Fatal(err)
	}
	return layout
}
