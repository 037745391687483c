package safetensors_test

import (
	"bytes"
	"fmt"
	"log"

	"nibble/store/safetensors"
	"nibble/tensor"
)

// A file is written in two steps, header and tensors, so that no more than one
// tensor need be in memory.
func Example() {
	layout, err := safetensors.Encode([]safetensors.Tensor{
		{Name: "codes", DType: tensor.U8, Shape: tensor.Shape{3}},
		{Name: "scale", DType: tensor.F32, Shape: tensor.Shape{}},
	}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	file := bytes.NewBuffer(layout.Header)
	for _, t := range layout.Tensors {
		file.Write(make([]byte, t.End-t.Begin))
	}

	h, err := safetensors.Read(bytes.NewReader(file.Bytes()), layout.Size)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range h.Tensors {
		fmt.Println(t.Name, t.DType, t.Shape, t.End-t.Begin)
	}
	// Output:
	// scale f32 [] 4
	// codes u8 [3] 3
}
