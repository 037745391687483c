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

// metadataKey is the one name in a header that is no tensor's.
const metadataKey = "__metadata__"

// A parser is the complete parser of one header. Its methods return an error
// to stop with; a problem that need not stop it goes through fail.
type parser struct {
	json []byte
	dec  *jsontext.Decoder
	base int64 // absolute offset of json[0]
	data int64 // absolute offset of the first tensor byte
	size int64 // of the file

	seen     map[string]bool
	tensors  []Tensor
	metadata map[string]string

	findings
	unplaced bool // a tensor is missing from tensors, so holes mean nothing
}

func newParser(json []byte, dataStart, size int64) *parser {
	return &parser{
		json: json,
		// Duplicates are found here, not in jsontext, whose error would end
		// the parse, and which would mind them in ignored values too.
		dec:  jsontext.NewDecoder(bytes.NewBuffer(json), jsontext.AllowDuplicateNames(true)),
		base: dataStart - int64(len(json)),
		data: dataStart,
		size: size,
		seen: make(map[string]bool),
	}
}

// parseComplete is Parse by the complete parser.
func parseComplete(json []byte, dataStart, size int64) (*Header, error) {
	p := newParser(json, dataStart, size)
	if err := p.run(); err != nil {
		return nil, err
	}
	h := &Header{Tensors: p.tensors, Metadata: p.metadata, DataStart: dataStart}
	h.names, _, _ = indexNames(h.Tensors) // p.seen has refused duplicates
	return h, nil
}

// run parses the header, then checks that its tensors tile the file.
func (p *parser) run() error {
	if err := p.header(); err != nil {
		return err
	}
	slices.SortStableFunc(p.tensors, byOffset)
	return p.tile()
}

func (p *parser) header() error {
	if len(p.json) == 0 || p.json[0] != '{' {
		return p.fatal(rule.New(rule.HeaderJSON, "header starts with %q, not with '{'", clip(p.json)).At(p.base))
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	for p.dec.PeekKind() != jsontext.KindEndObject {
		if err := p.member(); err != nil {
			return err
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	return p.padding()
}

// member parses one name and what it stands for.
func (p *parser) member() error {
	name, at, err := p.str()
	if err != nil {
		return err
	}
	if p.seen[name] {
		if err := p.fail(rule.New(rule.DuplicateName, "duplicate name in the header").At(at).For(name)); err != nil {
			return err
		}
	}
	p.seen[name] = true
	if name == metadataKey {
		return p.readMetadata()
	}
	return p.entry(name, at)
}

// padding checks what follows the closing brace.
func (p *parser) padding() error {
	end := p.dec.InputOffset()
	rest := p.json[end:]
	if i := len(rest) - len(bytes.TrimLeft(rest, " ")); i < len(rest) {
		return p.fail(rule.New(rule.HeaderJSON, "after the header's closing brace comes %q, not space padding", clip(rest[i:])).At(p.base + end + int64(i)))
	}
	return nil
}

// readMetadata reads the value of __metadata__ into p.metadata.
func (p *parser) readMetadata() error {
	depth := p.dec.StackDepth()
	switch p.dec.PeekKind() {
	case jsontext.KindNull:
		return p.skip()
	case jsontext.KindBeginObject:
	default:
		return p.wrongKind(rule.HeaderJSON, metadataKey, "%s is %s, not an object of strings", metadataKey)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	p.metadata = make(map[string]string)
	for p.dec.PeekKind() != jsontext.KindEndObject {
		if err := p.metadatum(); err != nil {
			return err
		}
	}
	return p.leave(depth)
}

func (p *parser) metadatum() error {
	key, at, err := p.str()
	if err != nil {
		return err
	}
	if _, dup := p.metadata[key]; dup {
		if err := p.fail(rule.New(rule.DuplicateName, "duplicate key %q in %s", clip(key), metadataKey).At(at).For(metadataKey)); err != nil {
			return err
		}
		return p.skip()
	}
	if p.dec.PeekKind() != jsontext.KindString {
		return p.wrongKind(rule.HeaderJSON, metadataKey, "%s: the value of %q is %s, not a string", metadataKey, clip(key))
	}
	p.metadata[key], _, err = p.str()
	return err
}

// next reads one whole value and returns its text, valid until the next call,
// and its absolute offset.
func (p *parser) next() (jsontext.Value, int64, error) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, 0, p.syntax(err)
	}
	return v, p.base + p.dec.InputOffset() - int64(len(v)), nil
}

// str reads a string: a name, or a value whose kind has been checked.
func (p *parser) str() (string, int64, error) {
	v, at, err := p.next()
	if err != nil {
		return "", 0, err
	}
	return unquote(v), at, nil
}

// wrongKind reads a value and reports what it is; the last verb of the format
// is for that.
func (p *parser) wrongKind(id rule.ID, name, format string, args ...any) error {
	v, at, err := p.next()
	if err != nil {
		return err
	}
	return p.fail(rule.New(id, format, append(args, kindName(v.Kind()))...).At(at).For(name))
}

func (p *parser) skip() error {
	if err := p.dec.SkipValue(); err != nil {
		return p.syntax(err)
	}
	return nil
}

// leave reads to the end of all that is nested deeper than depth.
func (p *parser) leave(depth int) error {
	for p.dec.StackDepth() > depth {
		if _, err := p.dec.ReadToken(); err != nil {
			return p.syntax(err)
		}
	}
	return nil
}

// syntax is the error for text that is not JSON. It ends the parse.
func (p *parser) syntax(err error) error {
	e := rule.New(rule.HeaderJSON, "header JSON: %w", err)
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		e = rule.New(rule.HeaderJSON, "header JSON: %w", se.Err).At(p.base + se.ByteOffset)
		for name := range se.JSONPointer.Tokens() {
			e = e.For(name)
			break
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Err = errors.New("header JSON is truncated")
	}
	return p.fatal(e)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	}
	return "an object"
}

// clip shortens text from a file to what a message has room for.
func clip[T ~string | ~[]byte](text T) string {
	const room = 40
	if len(text) <= room {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:room]), "") + "…"
}
