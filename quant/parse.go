package quant

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nibble/internal/rule"
	"nibble/tensor"
)

// MaxState is the largest quant_state, in bytes, that ParseState looks at.
// Real ones have about 170.
const MaxState = 1 << 16

// ParseState reads the JSON of a quant_state tensor. Keys that it does not
// know are ignored. The result is well-formed but not yet checked: its values
// may be wrong, and its companions missing. It keeps no part of data.
func ParseState(data []byte) (*State, error) {
	switch {
	case len(data) == 0:
		return nil, rule.New(rule.QuantJSON, "quant_state is empty")
	case len(data) > MaxState:
		return nil, rule.New(rule.QuantJSON, "quant_state has %d bytes; want at most %d", len(data), MaxState)
	case len(bytes.Trim(data, "\x00")) == 0:
		return nil, rule.New(rule.QuantJSON, "quant_state is filled with NUL bytes")
	}
	p := stateParser{dec: jsontext.NewDecoder(bytes.NewBuffer(data)), data: data}
	if err := p.object(); err != nil {
		return nil, err
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return p.finish()
}

// stateParser collects the raw values of the keys that matter, and judges them
// only after the whole text turned out to be JSON.
type stateParser struct {
	dec    *jsontext.Decoder
	data   []byte
	values map[string]jsontext.Value
}

func (p *stateParser) object() error {
	if k := p.dec.PeekKind(); k != '{' && k != 0 {
		return rule.New(rule.QuantJSON, "quant_state is %s; want an object", kindName(k))
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.broken(err, "")
	}
	p.values = make(map[string]jsontext.Value)
	for p.dec.PeekKind() != '}' {
		key, err := p.dec.ReadToken()
		if err != nil {
			return p.broken(err, "")
		}
		name := key.String()
		v, err := p.dec.ReadValue()
		if err != nil {
			return p.broken(err, name)
		}
		p.values[name] = v.Clone()
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.broken(err, "")
	}
	return nil
}

// end makes sure that nothing but white space follows.
func (p *stateParser) end() error {
	rest := bytes.TrimLeft(p.data[p.dec.InputOffset():], " \t\r\n")
	if len(rest) == 0 {
		return nil
	}
	if len(bytes.Trim(rest, "\x00")) == 0 {
		return rule.New(rule.QuantJSON, "quant_state is padded with %d NUL bytes", len(rest))
	}
	return rule.New(rule.QuantJSON, "quant_state has %d trailing bytes after its object", len(rest))
}

// broken puts an error of the JSON decoder into words. key is the key whose
// value was being read.
func (p *stateParser) broken(err error, key string) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return rule.New(rule.QuantJSON, "quant_state has a duplicate key: %w", err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return rule.New(rule.QuantJSON, "quant_state is truncated: %w", err)
	}
	if key == "nested_offset" && p.notFinite() {
		return rule.New(rule.Nested, "nested_offset is NaN or infinite")
	}
	return rule.New(rule.QuantJSON, "quant_state is not JSON: %w", err)
}

// notFinite reports whether the decoder stands before one of the literals that
// Python's json writes for what JSON cannot say.
func (p *stateParser) notFinite() bool {
	rest := strings.TrimLeft(string(p.data[p.dec.InputOffset():]), ": \t\r\n-")
	return strings.HasPrefix(rest, "NaN") || strings.HasPrefix(rest, "Infinity")
}

func (p *stateParser) finish() (*State, error) {
	var s State
	var err error
	if s.QuantType, err = p.text("quant_type", rule.QuantType); err != nil {
		return nil, err
	}
	if s.BlockSize, err = integer(p.values["blocksize"]); err != nil {
		return nil, rule.New(rule.QuantType, "blocksize %w", err)
	}
	name, err := p.text("dtype", rule.QuantShape)
	if err != nil {
		return nil, err
	}
	if s.DType, err = ParseDType(name); err != nil {
		return nil, err
	}
	if s.Shape, err = p.shape(); err != nil {
		return nil, err
	}
	s.Nested = p.nested()
	return &s, nil
}

// text is the string under key.
func (p *stateParser) text(key string, id rule.ID) (string, error) {
	v := p.values[key]
	if v.Kind() != '"' {
		return "", rule.New(id, "%s %w", key, unlike(v, "a string"))
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", rule.New(id, "%s: %w", key, err)
	}
	return string(b), nil
}

func integer(v jsontext.Value) (int64, error) {
	if v.Kind() != '0' {
		return 0, unlike(v, "an integer")
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, unlike(v, "an integer")
	}
	return n, nil
}

func (p *stateParser) shape() (tensor.Shape, error) {
	v := p.values["shape"]
	if v.Kind() != '[' {
		return nil, rule.New(rule.QuantShape, "shape %w", unlike(v, "a list of integers"))
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	if _, err := dec.ReadToken(); err != nil {
		return nil, rule.New(rule.QuantShape, "shape: %w", err)
	}
	shape := tensor.Shape{}
	for dec.PeekKind() != ']' {
		d, err := dec.ReadValue()
		if err != nil {
			return nil, rule.New(rule.QuantShape, "shape: %w", err)
		}
		n, err := integer(d)
		if err != nil {
			return nil, rule.New(rule.QuantShape, "shape[%d] %w", len(shape), err)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

// nested returns what is said of nested scales, in the terms of Nested, nil
// when no such key is there.
func (p *stateParser) nested() *Nested {
	found := false
	for _, key := range [...]string{"nested_blocksize", "nested_dtype", "nested_offset"} {
		found = found || p.values[key] != nil
	}
	if !found {
		return nil
	}
	n := Nested{Offset: math.NaN()}
	if b, err := integer(p.values["nested_blocksize"]); err == nil {
		n.BlockSize = b
	}
	if name, err := p.text("nested_dtype", rule.Nested); err == nil {
		if d, err := ParseDType(name); err == nil {
			n.DType = d
		}
	}
	if v := p.values["nested_offset"]; v.Kind() == '0' {
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			n.Offset = f
		}
	}
	return &n
}

// ParseDType finds the dtype that a quant state names: as torch does, with or
// without "torch.", and only those that a quantized tensor restores to
// (BNB-104).
func ParseDType(name string) (tensor.DType, error) {
	d, ok := tensor.FromTorch(strings.TrimPrefix(name, "torch."))
	if !ok || !restorable(d) {
		return tensor.Stored, rule.New(rule.QuantShape, "dtype is %q; want float16, bfloat16 or float32", name)
	}
	return d, nil
}

// unlike says what v is instead of what was wanted.
func unlike(v jsontext.Value, want string) error {
	switch v.Kind() {
	case jsontext.KindInvalid:
		return errors.New("is missing")
	case '"', '0':
		const most = 40 // enough to recognize it by
		if len(v) > most {
			v = append(v[:most:most], "..."...)
		}
		return errors.New("is " + string(v) + "; want " + want)
	}
	return errors.New("is " + kindName(v.Kind()) + "; want " + want)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	case '{':
		return "an object"
	}
	return "not JSON"
}
