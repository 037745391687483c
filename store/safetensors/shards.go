package safetensors

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nibble/internal/rule"
)

// MaxIndex is the longest index in bytes that is parsed.
const MaxIndex = 100_000_000

// Placement says which shard holds a tensor.
type Placement struct {
	Tensor string
	Shard  string // a plain file name in the directory of the index
}

// Index is the index of a sharded checkpoint, model.safetensors.index.json or
// pytorch_model.bin.index.json: the two have one format.
type Index struct {
	WeightMap []Placement // in the order of the file; no tensor twice
	Shards    []string    // the distinct shards, sorted
	// Metadata is the object of that name: strings unquoted, other values as
	// their JSON text, such as "16060522240" for total_size. Writers differ in
	// what they put here, so nothing in it is checked. nil if absent or null.
	Metadata map[string]string
}

// ParseIndex parses an index. Shards that could name a file outside the
// directory of the index are refused; whether they exist is not looked at.
// The data is not retained. Errors are *rule.Error without a path.
func ParseIndex(data []byte) (*Index, error) {
	if len(data) > MaxIndex {
		return nil, rule.New(rule.IndexJSON, "index of %d bytes is above the limit of %d", len(data), MaxIndex)
	}
	p := indexParser{dec: jsontext.NewDecoder(bytes.NewBuffer(data))}
	if err := p.index(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimLeft(data[p.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, rule.New(rule.IndexJSON, "after the index comes %q", clip(rest)).At(int64(len(data) - len(rest)))
	}
	if !p.mapped {
		return nil, rule.New(rule.IndexJSON, "index has no weight_map")
	}
	p.Shards = shardsOf(p.WeightMap)
	return &p.Index, nil
}

func shardsOf(placements []Placement) []string {
	shards := make([]string, 0, len(placements))
	for _, w := range placements {
		if len(shards) == 0 || shards[len(shards)-1] != w.Shard { // mostly runs
			shards = append(shards, w.Shard)
		}
	}
	slices.Sort(shards)
	return slices.Clip(slices.Compact(shards))
}

type indexParser struct {
	dec    *jsontext.Decoder // refuses duplicate keys
	mapped bool              // weight_map was there
	Index
}

func (p *indexParser) index() error {
	return p.object("index", func(key string) error {
		switch key {
		case "weight_map":
			p.mapped = true
			return p.object(key, p.placement)
		case "metadata":
			return p.metadata()
		}
		return p.syntax(p.dec.SkipValue())
	})
}

// placement reads the shard of a tensor.
func (p *indexParser) placement(name string) error {
	v, at, err := p.next()
	if err != nil {
		return err
	}
	if v.Kind() != jsontext.KindString {
		return rule.New(rule.IndexJSON, "shard is %s, not a string", kindName(v.Kind())).At(at).For(name)
	}
	shard := unquote(v)
	if reason := unsafeShard(shard); reason != "" {
		return rule.New(rule.IndexPath, "shard %q %s", clip(shard), reason).At(at).For(name)
	}
	if n := len(p.WeightMap); n > 0 && p.WeightMap[n-1].Shard == shard {
		shard = p.WeightMap[n-1].Shard // one copy for a run of tensors
	}
	p.WeightMap = append(p.WeightMap, Placement{name, shard})
	return nil
}

// unsafeShard says why a shard is not the name of a file beside the index, ""
// if it is. The answer is the same on every system, so that an index does not
// turn dangerous by being moved.
func unsafeShard(shard string) string {
	switch {
	case shard == "":
		return "is an empty name"
	case shard == "." || shard == "..":
		return "is a directory"
	case strings.ContainsAny(shard, `/\`):
		return "leaves the directory of the index, or might: want a plain file name"
	case strings.ContainsAny(shard, ":\x00"):
		return "is not a plain file name"
	}
	return ""
}

func (p *indexParser) metadata() error {
	if p.dec.PeekKind() == jsontext.KindNull {
		return p.syntax(p.dec.SkipValue())
	}
	p.Metadata = make(map[string]string)
	return p.object("metadata", func(key string) error {
		v, _, err := p.next()
		if err != nil {
			return err
		}
		if v.Kind() == jsontext.KindString {
			p.Metadata[key] = unquote(v)
		} else {
			p.Metadata[key] = string(v)
		}
		return nil
	})
}

// object reads an object and calls member at the value of each key.
func (p *indexParser) object(what string, member func(key string) error) error {
	if k := p.dec.PeekKind(); k != jsontext.KindBeginObject {
		v, at, err := p.next()
		if err != nil {
			return err
		}
		return rule.New(rule.IndexJSON, "%s is %s, not an object", what, kindName(v.Kind())).At(at)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	for p.dec.PeekKind() != jsontext.KindEndObject {
		v, _, err := p.next()
		if err != nil {
			return err
		}
		if err := member(unquote(v)); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return p.syntax(err)
}

func (p *indexParser) next() (jsontext.Value, int64, error) {
	v, err := p.dec.ReadValue()
	return v, p.dec.InputOffset() - int64(len(v)), p.syntax(err)
}

// unquote returns a string that the decoder has found to be valid.
func unquote(v jsontext.Value) string {
	s, _ := jsontext.AppendUnquote(nil, v)
	return string(s)
}

// syntax is the error for text that is not JSON, nil for nil.
func (p *indexParser) syntax(err error) error {
	if err == nil {
		return nil
	}
	var se *jsontext.SyntacticError
	switch {
	case err == io.EOF:
		return rule.New(rule.IndexJSON, "index is empty").At(0)
	case !errors.As(err, &se):
		return rule.New(rule.IndexJSON, "index JSON: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return rule.New(rule.IndexJSON, "index JSON is truncated").At(se.ByteOffset)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return rule.New(rule.IndexJSON, "duplicate key %q", clip(se.JSONPointer.LastToken())).At(se.ByteOffset)
	}
	return rule.New(rule.IndexJSON, "index JSON: %w", se.Err).At(se.ByteOffset)
}
