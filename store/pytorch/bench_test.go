package pytorch

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkRead opens archives of as many tensors as a large mixture of experts
// has, each with its own storage and an unshared name. Bytes are those of the
// whole file.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{300, 12288} {
		for _, how := range []string{"stored", "deflated"} {
			b.Run(fmt.Sprintf("tensors=%d/pickle=%s", n, how), func(b *testing.B) {
				file := manyTensors(b, n, how == "deflated")
				b.SetBytes(int64(len(file)))
				b.ReportAllocs()
				for b.Loop() {
					f, err := Read(bytes.NewReader(file), int64(len(file)), Limits{})
					if err != nil || len(f.Tensors) != n {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// manyTensors is an archive of n tensors of one element. Like torch's pickler it
// puts whatever it can into the memo.
func manyTensors(t testing.TB, n int, deflate bool) []byte {
	w := new(writer)
	puts := 0
	put := func() {
		w.op('r', string(le.AppendUint32(nil, uint32(puts))))
		puts++
	}
	w.op('}', '(')
	pkl := "m/data.pkl"
	if deflate {
		pkl += "*"
	}
	parts := []string{pkl, ""}
	for i := range n {
		key := fmt.Sprint(i)
		w.str(fmt.Sprintf("model.layers.%d.mlp.experts.%d.gate_proj.weight", i/384, i%384))
		put()
		w.op("ctorch._utils\n_rebuild_tensor_v2\n", '(')
		w.storage("FloatStorage", key, 1)
		put()
		w.op(0, 1, byte(0x85))
		put()
		w.op(1, byte(0x85))
		put()
		w.op(byte(0x89), '}')
		put()
		w.op('t')
		put()
		w.op('R')
		put()
		parts = append(parts, "m/data/"+key, float32s(float32(i)))
	}
	parts[1] = w.op('u', '.').String()
	return zipFileOf(t, parts...)
}
