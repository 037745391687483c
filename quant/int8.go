package quant

import (
	"strconv"

	"nibble/internal/rule"
	"nibble/tensor"
)

// Int8 decodes the rows of LLM.int8(). Its parts are the weight and SCB, one
// statistic a row. An element is q * SCB[row] * (1/127), in this order, each
// product rounded to float32.
type Int8 struct {
	rows, cols int64
	scb        floatPart
}

// inv127 is float32(1/127), as bitsandbytes writes it.
const inv127 float32 = 7.874015718698502e-3

// NewInt8 checks a weight in row layout and its SCB (BNB-201), nil when the
// checkpoint has none. Errors are *rule.Error.
func NewInt8(weight Stored, scb *Stored) (*Int8, error) {
	n, ok := weight.Shape.Numel()
	if weight.DType != tensor.I8 || len(weight.Shape) != 2 || !ok || weight.Bytes != n {
		return nil, rule.New(rule.SCB, "weight is %d bytes of %v %v; want i8 [out,in]", weight.Bytes, weight.DType, weight.Shape)
	}
	rows, cols := weight.Shape[0], weight.Shape[1]
	if err := scbPart.vector(scb, rows, tensor.F32); err != nil {
		return nil, err
	}
	return &Int8{rows, cols, floatPart{scb.DType}}, nil
}

// weightFormats are the layouts of LLM.int8() weights, by their number.
var weightFormats = [...]string{"row", "col32", "col_turing", "col_ampere"}

// CheckWeightFormat judges the content of a weight_format tensor, one u8. Only
// the row layout is decoded (BNB-202).
func CheckWeightFormat(content []byte) error {
	if len(content) != 1 {
		return rule.New(rule.WeightFormat, "weight_format has %d bytes; want 1", len(content))
	}
	return checkWeightFormatNumber(uint64(content[0]))
}

func checkWeightFormatNumber(f uint64) error {
	if f < uint64(len(weightFormats)) {
		return CheckWeightFormatName(weightFormats[f])
	}
	return rule.New(rule.WeightFormat, "weight_format is %d, which is not known; want 0 (row)", f)
}

// CheckWeightFormatName is CheckWeightFormat for torch files where the format is
// a Python value: a string, or the number in decimal.
func CheckWeightFormatName(name string) error {
	if f, err := strconv.ParseUint(name, 10, 64); err == nil {
		return checkWeightFormatNumber(f)
	}
	if name != "row" {
		return rule.New(rule.WeightFormat, "weight_format is %q; only row is decoded", name)
	}
	return nil
}

// Numel is the number of elements.
func (d *Int8) Numel() int64 { return d.rows * d.cols }

// DType is F32: the checkpoint records none, and bitsandbytes' own operation
// returns it.
func (d *Int8) DType() tensor.DType { return tensor.F32 }

// Can reports whether dt is F16, BF16 or F32.
func (d *Int8) Can(dt tensor.DType) bool { return restorable(dt) }

// Align is 1: a range may be cut anywhere.
func (d *Int8) Align() int64 { return 1 }

// Parts is 2.
func (d *Int8) Parts() int { return 2 }

// Span is the byte range of part p that elements [lo, hi) need.
func (d *Int8) Span(p int, lo, hi int64) (off, n int64) {
	if lo == hi {
		return 0, 0
	}
	if p == 0 {
		return lo, hi - lo
	}
	return d.scb.span(lo/d.cols, (hi-1)/d.cols+1)
}

// Decode writes elements [lo, hi) as dt to dst.
func (d *Int8) Decode(dst []byte, dt tensor.DType, lo, hi int64, parts [][]byte, w Write) {
	mustFit(d, dst, dt, lo, hi, parts)
	k := activeKernel()
	stream := w.streams(k, len(dst))
	codes, size := parts[0], dt.Size()
	for row := 0; lo < hi; row++ {
		n := int(min(hi, (lo/d.cols+1)*d.cols) - lo)
		var scb [1]float32
		d.scb.read(scb[:], parts[1], row)
		int8Row(k, dst[:n*size], dt, codes[:n], scb[0], stream)
		dst, codes, lo = dst[n*size:], codes[n:], lo+int64(n)
	}
	if stream {
		storeFence()
	}
}

// int8Row decodes elements of one row: by k where they fill its units, and in
// plain Go before, up to where a destination to be streamed begins a line, and
// after.
func int8Row(k kernel, dst []byte, dt tensor.DType, codes []byte, scb float32, stream bool) {
	size, head := dt.Size(), 0
	if to := toLine(dst); stream && to%size == 0 {
		head = min(len(codes), to/size)
	} else {
		stream = false
	}
	int8Run(dst[:head*size], dt, codes[:head], scb)
	n := head + k.int8(dst[head*size:], dt, codes[head:], scb, stream)
	int8Run(dst[n*size:], dt, codes[n:], scb)
}

// int8Run decodes elements of one row.
func int8Run(dst []byte, dt tensor.DType, codes []byte, scb float32) {
	if len(codes) >= longRun {
		var results [256]float32
		for c := range results {
			results[c] = int8Value(byte(c), scb)
		}
		lookUp256(dst, dt, codes, &results)
		return
	}
	for len(codes) > 0 {
		var buf [chunk]float32
		n := min(chunk, len(codes))
		for i, c := range codes[:n] {
			buf[i] = int8Value(c, scb)
		}
		tensor.Narrow(dst[:n*dt.Size()], dt, buf[:n])
		dst, codes = dst[n*dt.Size():], codes[n:]
	}
}

func int8Value(code byte, scb float32) float32 { return float32(float32(int8(code))*scb) * inv127 }
