package safetensors

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nibble/internal/rule"
	"nibble/tensor"
)

// A Layout is the plan of a file: its first bytes, and what follows them.
type Layout struct {
	Header  []byte   // length, JSON and padding: the file up to the first tensor
	Tensors []Tensor // in the order of their bytes, which follow Header without gaps
	Size    int64    // of the whole file in bytes
}

// Encode lays out a file of tensors as the reference implementation does: by
// descending alignment of the dtype, then by name, with the header padded to a
// multiple of 8 bytes, so that every tensor is aligned to its elements. A nil
// metadata is left out; an empty one is written as {}.
//
// Of each tensor it looks at Name, DType and Shape; the result has new offsets
// and shares the shapes. It refuses, with the same rules, what [Parse] would
// not read back.
func Encode(tensors []Tensor, metadata map[string]string) (*Layout, error) {
	l := &Layout{Tensors: slices.Clone(tensors)}
	slices.SortFunc(l.Tensors, canonical)
	if err := l.place(); err != nil {
		return nil, err
	}
	if err := l.encode(metadata); err != nil {
		return nil, err
	}
	return l, l.shift(int64(len(l.Header)))
}

// canonical orders tensors as the reference does.
func canonical(a, b Tensor) int {
	return cmp.Or(cmp.Compare(rank[b.DType], rank[a.DType]), strings.Compare(a.Name, b.Name))
}

// rank is the order of dtypes in the reference: of increasing alignment, and
// within one alignment as they stand in its source.
var rank = func() map[tensor.DType]int {
	m := make(map[tensor.DType]int)
	for i, d := range []tensor.DType{
		tensor.Bool, tensor.F4, tensor.F6E2M3, tensor.F6E3M2, tensor.U8, tensor.I8,
		tensor.F8E5M2, tensor.F8E4M3, tensor.F8E8M0, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ,
		tensor.I16, tensor.U16, tensor.F16, tensor.BF16, tensor.I32, tensor.U32, tensor.F32,
		tensor.C64, tensor.F64, tensor.I64, tensor.U64,
	} {
		m[d] = i
	}
	return m
}()

// place checks the tensors and gives them offsets relative to the data.
func (l *Layout) place() error {
	seen := make(map[string]bool, len(l.Tensors))
	var end int64
	for i := range l.Tensors {
		t := &l.Tensors[i]
		switch {
		case t.DType.Safetensors() == "":
			return rule.New(rule.HeaderDType, "safetensors has no dtype for %s", t.DType).For(t.Name)
		case t.Name == metadataKey:
			return rule.New(rule.HeaderJSON, "%s cannot be the name of a tensor", metadataKey).For(t.Name)
		case seen[t.Name]:
			return rule.New(rule.DuplicateName, "duplicate name").For(t.Name)
		}
		seen[t.Name] = true
		n, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return rule.New(rule.HeaderShape, "shape %s of %s: %w", clip(t.Shape.String()), t.DType.Safetensors(), err).For(t.Name)
		}
		if n > math.MaxInt64-end {
			return rule.New(rule.Offsets, "the tensors together overflow").For(t.Name)
		}
		t.Begin, t.End = end, end+n
		end += n
	}
	return nil
}

// shift makes the offsets absolute.
func (l *Layout) shift(dataStart int64) error {
	l.Size = dataStart
	for i := range l.Tensors {
		t := &l.Tensors[i]
		if t.End > math.MaxInt64-dataStart {
			return rule.New(rule.Offsets, "the tensors together overflow").For(t.Name)
		}
		t.Begin += dataStart
		t.End += dataStart
		l.Size = t.End
	}
	return nil
}

// encode writes l.Header.
func (l *Layout) encode(metadata map[string]string) error {
	b := append(make([]byte, prefixLen), '{')
	var err error
	if metadata != nil {
		if b, err = appendMetadata(b, metadata); err != nil {
			return err
		}
	}
	for i := range l.Tensors {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		if b, err = appendEntry(b, &l.Tensors[i]); err != nil {
			return err
		}
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	n := len(b) - prefixLen
	if n > MaxHeader {
		return rule.New(rule.HeaderLength, "header length %d is above the limit of %d", n, MaxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	l.Header = b
	return nil
}

func appendMetadata(b []byte, metadata map[string]string) ([]byte, error) {
	b = append(b, `"`+metadataKey+`":{`...)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		var err error
		if b, err = appendString(b, key, metadataKey); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendString(b, metadata[key], metadataKey); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendEntry(b []byte, t *Tensor) ([]byte, error) {
	b, err := appendString(b, t.Name, t.Name)
	if err != nil {
		return nil, err
	}
	b = append(b, `:{"dtype":"`...)
	b = append(b, t.DType.Safetensors()...)
	b = append(b, `","shape":`...)
	b = append(b, t.Shape.String()...)
	b = append(b, `,"data_offsets":[`...)
	b = strconv.AppendInt(b, t.Begin, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, t.End, 10)
	return append(b, "]}"...), nil
}

// appendString appends s in quotes, on behalf of the named tensor.
func appendString(b []byte, s, name string) ([]byte, error) {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return nil, rule.New(rule.HeaderJSON, "%s is not UTF-8, which JSON demands", strconv.QuoteToASCII(clip(s))).For(name)
	}
	return b, nil
}

// EncodeIndex writes the index of a sharded checkpoint, as transformers does:
// sorted by tensor, indented by two, total_size in bytes of the tensors alone.
// It refuses, with the same rules, what [ParseIndex] would not read back.
func EncodeIndex(weightMap []Placement, totalSize int64) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(weightMap), func(a, b Placement) int {
		return strings.Compare(a.Tensor, b.Tensor)
	})
	b := strconv.AppendInt([]byte("{\n  \"metadata\": {\n    \"total_size\": "), totalSize, 10)
	b = append(b, "\n  },\n  \"weight_map\": {"...)
	for i, w := range sorted {
		if i > 0 && sorted[i-1].Tensor == w.Tensor {
			return nil, rule.New(rule.IndexJSON, "duplicate name").For(w.Tensor)
		}
		if reason := unsafeShard(w.Shard); reason != "" {
			return nil, rule.New(rule.IndexPath, "shard %q %s", clip(w.Shard), reason).For(w.Tensor)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		var err error
		if b, err = appendPlacement(b, w); err != nil {
			return nil, err
		}
	}
	if len(sorted) > 0 {
		b = append(b, "\n  "...)
	}
	return append(b, "}\n}\n"...), nil
}

func appendPlacement(b []byte, w Placement) ([]byte, error) {
	b, err := jsontext.AppendQuote(b, w.Tensor)
	if err == nil {
		b, err = jsontext.AppendQuote(append(b, ": "...), w.Shard)
	}
	if err != nil {
		return nil, rule.New(rule.IndexJSON, "name or shard is not UTF-8, which JSON demands").For(w.Tensor)
	}
	return b, nil
}
