package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"nibble/tensor"
)

// npyTypes is what NumPy calls each dtype that it has.
var npyTypes = map[tensor.DType]string{
	tensor.Bool: "|b1", tensor.U8: "|u1", tensor.I8: "|i1", tensor.U16: "<u2", tensor.I16: "<i2",
	tensor.U32: "<u4", tensor.I32: "<i4", tensor.U64: "<u8", tensor.I64: "<i8",
	tensor.F16: "<f2", tensor.F32: "<f4", tensor.F64: "<f8", tensor.C64: "<c8", tensor.C128: "<c16",
}

// npyDims is the most dimensions that NumPy has.
const npyDims = 64

// npy writes a NumPy file, format version 1.0. The values are streamed: a
// library would want them all in memory.
func (c *catter) npy(ctx context.Context) error {
	convert := func(data []byte) []byte { return data }
	descr, ok := npyTypes[c.got]
	if !ok {
		if !c.got.IsFloat() {
			return usagef("numpy has no %s: ask for --format raw", c.got)
		}
		c.app.say("numpy has no %s: widened to f32", c.got)
		descr = npyTypes[tensor.F32]
		convert = func(data []byte) []byte { return widenLittle(data, c.got) }
	}
	if len(c.shape) > npyDims {
		return usagef("numpy has at most %d dimensions, the tensor has %d: ask for --format raw", npyDims, len(c.shape))
	}
	if _, err := c.app.stdout.Write(npyHeader(descr, c.shape)); err != nil {
		return err
	}
	return c.write(ctx, c.app.stdout, convert)
}

// npyHeader is everything before the values: magic, version, the length of a
// Python dictionary, and the dictionary, padded so that the values are aligned
// to 64 bytes.
func npyHeader(descr string, shape tensor.Shape) []byte {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = fmt.Sprintf("%d,", d)
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, strings.Join(dims, " "))
	const before = 10 // bytes before the dictionary
	pad := 63 - (before+len(dict))%64
	dict += strings.Repeat(" ", pad) + "\n"
	head := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(head[8:], uint16(len(dict)))
	return append(head, dict...)
}

// widenLittle widens little-endian elements to little-endian f32.
func widenLittle(data []byte, dt tensor.DType) []byte {
	values := make([]float32, len(data)/dt.Size())
	tensor.Widen(values, data, dt)
	wide := make([]byte, 0, 4*len(values))
	for _, f := range values {
		wide = binary.LittleEndian.AppendUint32(wide, math.Float32bits(f))
	}
	return wide
}
