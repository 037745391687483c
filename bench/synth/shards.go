package synth

import (
	"fmt"
	"os"
	"path/filepath"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// Shards writes a checkpoint of many small plain tensors to dir: so many shards
// with so many tensors each, and an index.
func Shards(dir string, shards, tensors int) error {
	var places []safetensors.Placement
	var total int64
	for s := range shards {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", s+1, shards)
		ts := make([]safetensors.Tensor, tensors)
		for i := range ts {
			name := fmt.Sprintf("model.layers.%d.mlp.experts.%d.up_proj.weight", s, i)
			ts[i] = safetensors.Tensor{Name: name, DType: tensor.BF16, Shape: tensor.Shape{2, 4}}
			places = append(places, safetensors.Placement{Tensor: name, Shard: file})
		}
		layout, err := safetensors.Encode(ts, nil)
		if err != nil {
			return err
		}
		data := make([]byte, layout.Size)
		copy(data, layout.Header)
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			return err
		}
		total += layout.Size - int64(len(layout.Header))
	}
	index, err := safetensors.EncodeIndex(places, total)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o644)
}
