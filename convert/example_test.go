package convert_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"nibble/convert"
	"nibble/store"
	"nibble/tensor"
)

func ExampleRun() {
	ctx := context.Background()
	st, err := store.Open(ctx, "../testdata/golden/model_sharded")
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	r, err := convert.Run(ctx, st, filepath.Join(dir, "plain"), convert.Options{DType: tensor.F16, MaxShardSize: 256 << 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Files {
		fmt.Println(filepath.Base(f))
	}
	fmt.Println(r.Tensors, "tensors,", r.Bytes, "bytes of", r.FloatDType)
	// Output:
	// model-00001-of-00002.safetensors
	// model-00002-of-00002.safetensors
	// model.safetensors.index.json
	// config.json
	// 39 tensors, 410752 bytes of f16
}
