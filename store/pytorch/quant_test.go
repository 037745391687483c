package pytorch

import (
	"fmt"
	"strings"
	"testing"
)

// bytesTensor pushes a vector of n bytes over storage key.
func (w *writer) bytesTensor(class, key string, n int) *writer {
	w.op("ctorch._utils\n_rebuild_tensor_v2\n", '(').storage(class, key, n)
	return w.op(0, n, byte(0x85), 1, byte(0x85), byte(0x89), '}', 't', 'R')
}

// parts of a quant state over storages "0" (bytes) and "1" (floats).
func (w *writer) codes() *writer  { return w.bytesTensor("ByteStorage", "0", 32) }
func (w *writer) int8s() *writer  { return w.bytesTensor("CharStorage", "0", 32) }
func (w *writer) absmax() *writer { return w.tensor("1", 1) }
func (w *writer) code() *writer   { return w.tensor("1", 16) }
func (w *writer) map8() *writer   { return w.tensor("1", 256) }

// quantState pushes a QuantState object of nf4, not nested.
func (w *writer) quantState() *writer {
	w.op("cbitsandbytes.functional\nQuantState\n)\x81}(")
	w.str("absmax").absmax()
	w.str("code").code()
	w.str("shape").op("ctorch\nSize\n", 8, 8, byte(0x86), byte(0x85), 'R')
	w.str("dtype").op("ctorch\nbfloat16\n")
	w.str("blocksize").op(64)
	w.str("quant_type").str("nf4")
	w.str("offset").op('N').str("state2").op('N')
	return w.op('u', 'b')
}

// quantized describes the quantized tensors of an archive with pickle w.
func quantized(t *testing.T, w *writer) string {
	t.Helper()
	b := zipFileOf(t, "a/data.pkl", w.String(), "a/data/0", strings.Repeat("\x01", 64), "a/data/1", strings.Repeat("\x00", 1024), "a/data/2", strings.Repeat("\x00", 256))
	f, err := readBounded(t, b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, q := range f.Quantized {
		s := fmt.Sprintf("%s:%s", q.Name, q.Scheme)
		if q.QuantType != "" {
			s += " " + q.QuantType
		}
		if q.BlockSize != 0 {
			s += fmt.Sprintf(" %d %s", q.BlockSize, q.DType)
		}
		if q.HasShape {
			s += " " + q.Shape.String()
		}
		for _, part := range []struct {
			name  string
			index int
		}{
			{"absmax", q.Absmax}, {"map", q.QuantMap}, {"absmax2", q.NestedAbsmax}, {"map2", q.NestedMap},
			{"offset", q.OffsetTensor}, {"json", q.JSON}, {"scb", q.SCB},
		} {
			if part.index >= 0 {
				s += " " + part.name + "=" + f.Tensors[part.index].Name
			}
		}
		if q.Nested {
			s += fmt.Sprintf(" nested %d", q.NestedBlockSize)
		}
		if q.HasOffset {
			s += fmt.Sprintf(" offset %v", q.NestedOffset)
		}
		if q.WeightFormat != "" {
			s += " format " + q.WeightFormat
		}
		if q.Err != nil {
			s += " error " + q.Err.Error()
		}
		s += fmt.Sprintf(" hides %d", len(q.Companions))
		out = append(out, s)
	}
	check(t, f, int64(len(b)))
	hidden := 0
	for _, q := range f.Quantized {
		hidden += len(q.Companions) + 1
	}
	if len(f.Quantized) > 0 && hidden != len(f.Tensors) {
		out = append(out, fmt.Sprintf("and %d tensors", len(f.Tensors)-hidden))
	}
	for _, o := range f.Opaque {
		out = append(out, "opaque "+o.Name)
	}
	return strings.Join(out, "\n")
}

func TestQuantized(t *testing.T) {
	const (
		state  = " nf4 64 bfloat16 [8,8] absmax=%[1]s.absmax map=%[1]s.code hides 2"
		object = "4bit" + state
	)
	for _, c := range []struct {
		name string
		w    *writer
		want string
	}{
		{
			"parameter with state",
			new(writer).op('}').str("w").op("ctorch._utils\n_rebuild_parameter_with_state\n(").codes().op(byte(0x88), '}', '}', '(').
				str("data").codes().str("blocksize").op(64).str("quant_state").quantState().str("bnb_quantized").op(byte(0x88)).op('u', "tR", 's', '.'),
			fmt.Sprintf("w:"+object, "w.quant_state"),
		},
		{
			"from type",
			new(writer).op('}').str("w").op("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_parameter\ncbitsandbytes.nn.modules\nParams4bit\n(").
				codes().op(byte(0x88), '}', 't', '}').str("quant_state").quantState().op('s', "tR", 's', '.'),
			fmt.Sprintf("w:"+object, "w.quant_state"),
		},
		{
			"Params4bit instance",
			new(writer).op('}').str("w").op("cbitsandbytes.nn.modules\nParams4bit\n)\x81}(").
				str("data").codes().str("module").op("cm\nLinear4bit\n)R").str("quant_state").quantState().op('u', 'b', 's', '.'),
			fmt.Sprintf("w:"+object, "w.quant_state"),
		},
		{
			"Params4bit instance that is the root",
			new(writer).op("cbitsandbytes.nn.modules\nParams4bit\n)\x81}(").str("data").codes().str("quant_state").quantState().op('u', 'b', '.'),
			fmt.Sprintf("tensor:"+object, "quant_state"),
		},
		{
			"Params4bit not yet quantized",
			new(writer).op("cbitsandbytes.nn.modules\nParams4bit\n)\x81}(").str("data").tensor("1", 4).str("quant_state").op('N', 'u', 'b', '.'),
			"",
		},
		{
			"Int8Params instance",
			new(writer).op('}').str("w").op("cbitsandbytes.nn.modules\nInt8Params\n)\x81}(").
				str("data").int8s().str("CB").int8s().str("SCB").absmax().op('u', 'b', 's', '.'),
			"w:int8 scb=w.SCB hides 1",
		},
		{
			"Int8Params not yet quantized",
			new(writer).op('}').str("w").op("cbitsandbytes.nn.modules\nInt8Params\n)\x81}(").
				str("data").tensor("1", 4).str("SCB").absmax().op('u', 'b', 's', '.'),
			"",
		},
		{
			"parameter with itself as an attribute",
			new(writer).op('}').str("w").op("cbitsandbytes.nn.modules\nParams4bit\n)\x81}(").str("data").codes().op("q\x09").
				str("alias").op("h\x09").str("other").absmax().str("quant_state").quantState().op('u', 'b', 's', '.'),
			fmt.Sprintf("w:"+object, "w.quant_state") + "\nand 1 tensors",
		},
		{
			"a state whose absmax has a state",
			new(writer).op('}', '(').str("w").codes().str("w.quant_state").op("cbitsandbytes.functional\nQuantState\n)\x81}(").
				str("absmax").op("ctorch._utils\n_rebuild_parameter_with_state\n(").absmax().op('N', 'N', '}').str("quant_state").quantState().op('s', "tR").
				str("code").code().str("blocksize").op(64).str("quant_type").str("nf4").op('u', 'b', 'u', '.'),
			"w:4bit nf4 64  absmax=w.quant_state.absmax map=w.quant_state.code hides 2",
		},
		{
			"a state in which something looks quantized",
			new(writer).op('}', '(').str("w").codes().str("w.quant_state").op('}', '(').str("absmax").absmax().str("quant_map").code().
				str("blocksize").op(64).str("quant_type").str("fp4").str("dtype").str("torch.float16").str("v").codes().str("v.blocksize").op(64).op('u', 'u', '.'),
			"w:4bit fp4 64 float16 absmax=w.quant_state.absmax map=w.quant_state.quant_map hides 3",
		},
		{
			"two forms in one dict",
			new(writer).op('}', '(').str("a").codes().str("a.quant_map").code().str("a.absmax").absmax().str("a.quant_type").str("nf4").str("a.blocksize").op(64).
				str("b").codes().str("b.quant_state").quantState().op('u', '.'),
			"a:4bit nf4 64  absmax=a.absmax map=a.quant_map hides 2\n" + fmt.Sprintf("b:"+object, "b.quant_state"),
		},
		{
			"a key that only ends in weight_format",
			new(writer).op('}', '(').str("xweight").int8s().str("xSCB").absmax().str("xweight_format").str("row").op('u', '.'),
			"",
		},
		{
			"floats beside a map are no codes",
			new(writer).op('(').absmax().op('(').absmax().map8().op('t', 't', '.'),
			"",
		},
		{
			"bytes are no map",
			new(writer).op('(').codes().op('(').absmax().bytesTensor("ByteStorage", "2", 256).op('t', 't', '.'),
			"",
		},
		{
			"Int8Params without data",
			new(writer).op('}').str("w").op("cbitsandbytes.nn.modules\nInt8Params\n)\x81}(").
				str("data").op('N').str("CB").int8s().str("SCB").absmax().op('u', 'b', 's', '.'),
			"w:int8 scb=w.SCB hides 1",
		},
		{
			"weight_format as a number",
			new(writer).op('}', '(').str("l.weight").int8s().str("l.SCB").absmax().str("l.weight_format").op(2).op('u', '.'),
			"l.weight:int8 scb=l.SCB format 2 hides 1",
		},
		{
			"weight_format without SCB",
			new(writer).op('}', '(').str("weight").int8s().str("weight_format").str("row").op('u', '.'),
			`weight:int8 format row error "weight": BNB-201: missing companion "SCB" hides 0`,
		},
		{
			"state beside a weight of any name",
			new(writer).op('}', '(').str("experts").codes().str("quant_state").quantState().op('u', '.'),
			fmt.Sprintf("experts:"+object, "quant_state"),
		},
		{
			"state beside two tensors",
			new(writer).op('}', '(').str("x").codes().str("y").codes().str("quant_state").quantState().op('u', '.'),
			"",
		},
		{
			"state beside weight and bias",
			new(writer).op('}', '(').str("bias").absmax().str("weight").codes().str("quant_state").quantState().op('u', '.'),
			fmt.Sprintf("weight:"+object, "quant_state") + "\nand 1 tensors",
		},
		{
			"state of None",
			new(writer).op('}', '(').str("weight").codes().str("quant_state").op('N', 'u', '.'),
			"",
		},
		{
			"state with a key of its own",
			new(writer).op('}', '(').str("l.weight.quant_state").quantState().str("l.weight").codes().op('u', '.'),
			fmt.Sprintf("l.weight:"+object, "l.weight.quant_state"),
		},
		{
			"one state for two weights",
			new(writer).op('}', '(').str("a").op('(').codes().quantState().op("q\x01", 't').str("b").op('(').codes().op("h\x01", 't', 'u', '.'),
			fmt.Sprintf("a.0:"+object, "a.1") + "\n" + fmt.Sprintf("b.0:"+object, "b.1"),
		},
		{
			"two states for one weight",
			new(writer).op('}', '(').str("w").codes().str("w.quant_state").quantState().str("w.blocksize").op(64).op('u', '.'),
			strings.Replace(fmt.Sprintf("w:"+object, "w.quant_state"), " hides", ` error "w": BNB-105: two quant states hides`, 1),
		},
		{
			"packed state that is nested",
			new(writer).op('}', '(').str("weight").codes().str("quant_state").op('}', '(').str("absmax").absmax().str("quant_map").code().
				str("quant_state.bitsandbytes__nf4").codes().op('u', 'u', '.'),
			"weight:4bit absmax=quant_state.absmax map=quant_state.quant_map json=quant_state.quant_state.bitsandbytes__nf4 hides 3",
		},
		{
			"state in a sequence of three",
			new(writer).op('(').codes().quantState().op('N', 't', '.'),
			"",
		},
		{
			"8-bit list of two",
			new(writer).op('}').str("x").op('(').codes().op('(').absmax().map8().op('t', 't', 's', '.'),
			"x.0:blockwise8 4096  absmax=x.1.0 map=x.1.1 hides 2",
		},
		{
			"8-bit list of 0.39, nested",
			new(writer).op('}').str("x").op('(').codes().op('(').codes().map8().op(256, byte(0x88), "F0.5\n", '(').
				absmax().map8().op(128, byte(0x89), 'N', 'N', 't', 't', 't', 's', '.'),
			"x.0:blockwise8 256  absmax=x.1.0 map=x.1.1 absmax2=x.1.5.0 map2=x.1.5.1 nested 128 offset 0.5 hides 4",
		},
		{
			"8-bit list of 0.41",
			new(writer).op('}').str("x").op('(').codes().op('(').absmax().map8().op(256, byte(0x89), "ctorch\nfloat16\n", 'N', 'N', 't', 't', 's', '.'),
			"x.0:blockwise8 256 float16 absmax=x.1.0 map=x.1.1 hides 2",
		},
		{
			"a tensor beside other tensors is no state",
			new(writer).op('(').codes().op('(').absmax().code().op('t', 't', '.'),
			"",
		},
		{
			"optimizer",
			new(writer).op('}').str("state").op('}').op(0).op('}', '(').str("step").op(1).str("state1").codes().str("state2").codes().
				str("qmap1").map8().str("absmax1").absmax().str("qmap2").map8().str("absmax2").absmax().op('u', 's', 's', '.'),
			"state.0.state1:blockwise8 256 float32 absmax=state.0.absmax1 map=state.0.qmap1 hides 2\n" +
				"state.0.state2:blockwise8 256 float32 absmax=state.0.absmax2 map=state.0.qmap2 hides 2",
		},
		{
			"optimizer wrapped for FSDP",
			new(writer).op('}').str("state").op('}').op(3).op('}', '(').str("step").op(1).str(optimizerLevel).op('}', '(').
				str("state1").codes().str("qmap1").map8().str("absmax1").absmax().op('u', 'u', 's', 's', '.'),
			"state.3.state1:blockwise8 256 float32 absmax=state.3.absmax1 map=state.3.qmap1 hides 2",
		},
		{
			"optimizer without its map",
			new(writer).op('}', '(').str("state1").codes().str("absmax1").absmax().op('u', '.'),
			`state1:blockwise8 256 float32 absmax=absmax1 error "state1": BNB-101: missing companion "qmap1" hides 1`,
		},
		{
			"bytes that are only called state1",
			new(writer).op('}', '(').str("state1").codes().str("state2").codes().op('u', '.'),
			"",
		},
		{
			"optimizer of 32 bits",
			new(writer).op('}', '(').str("state1").tensor("1", 4).str("qmap1").map8().str("absmax1").absmax().op('u', '.'),
			"",
		},
		{
			"unpacked state with fields of other types",
			new(writer).op('}', '(').str("w").codes().str("w.absmax").absmax().str("w.quant_map").code().str("w.quant_type").op(4).
				str("w.blocksize").str("64").str("w.dtype").op("F1\n").str("w.shape").op('(').str("x").op('t', 'u', '.'),
			`w:4bit [0] absmax=w.absmax map=w.quant_map error "w": BNB-001: quant_type of type int hides 2`,
		},
		{
			"unpacked state without absmax",
			new(writer).op('}', '(').str("w").codes().str("w.quant_type").str("nf4").str("w.blocksize").op(64).str("w.shape").op('N', 'u', '.'),
			`w:4bit nf4 64  error "w": BNB-101: missing companion "absmax" hides 0`,
		},
		{
			"a state that contains itself",
			new(writer).op('}', '(').str("w").codes().str("w.quant_state").op(']', "q\x01", "h\x01", 'a', 'u', '.'),
			`w:4bit error "w": BNB-103: quant state is a list of 1 items, not of 6 or 7 hides 0`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := quantized(t, c.w); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
