package store_test

import (
	"context"
	"fmt"
	"log"

	"nibble/store"
	"nibble/tensor"
)

// A consumer of a model goes through its layers: acquire one, use it, let go.
func Example() {
	ctx := context.Background()
	st, err := store.Open(ctx, "../testdata/golden/model_sharded", store.WithConfig(store.Config{CacheBudget: 1 << 20}))
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	for layer, err := range st.Layers(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		leases, err := layer.Acquire(ctx, tensor.BF16)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(layer.Name(), leases[0].Shape(), leases[0].BFloat16s()[0].Float32())
		leases.Release()
	}
	// Output:
	// embeddings [256,64] -0.29882812
	// model.layers.0 [64] 0.9921875
	// model.layers.1 [32,64] 0.015014648
	// model.layers.2 [160,64] 0.027709961
	// model.layers.3 [64] 1.125
	// head [256,64] -0.71875
}

// Rows are decoded into memory of the caller's; only the blocks that they need
// are read.
func ExampleReadRows() {
	ctx := context.Background()
	st, err := store.Open(ctx, "../testdata/golden/model_single")
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	t, err := st.Tensor("model.layers.0.self_attn.q_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	row := make([]float32, 64)
	if err := store.ReadRows(ctx, t, row, 0, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(row[:4])
	// Output: [0.08946726 -0.062799715 0.053735223 0.08946726]
}

// Tiles suit a caller who consumes elements at once: memory does not grow with
// the tensor.
func ExampleTensor_Tiles() {
	ctx := context.Background()
	st, err := store.Open(ctx, "../testdata/golden/model_single")
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	t, err := st.Tensor("model.layers.0.mlp.gate_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	for tile, err := range t.Tiles(ctx, tensor.F32, 16<<10) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tile.Lo, tile.Hi, len(tile.Data))
	}
	// Output:
	// 0 4096 16384
	// 4096 8192 16384
	// 8192 10240 8192
}
