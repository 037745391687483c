package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"nibble/tensor"
)

// member is a key of a JSON object and its value, both as they stand in the
// text.
type member struct {
	key         string // unquoted
	name, value []byte
}

// dtypeKeys are what transformers calls the dtype of a model: the first until
// release 4.55, the second since.
var dtypeKeys = []string{"torch_dtype", "dtype"}

// maxNesting bounds how deep configs within configs are looked for. Models of
// several parts have two or three.
const maxNesting = 8

// rewriteConfig makes the config of a quantized model that of a plain one. The
// order of its keys and all other values stay as they are.
//
// Whichever of dtypeKeys is there is set to dt, and torch_dtype added if it is
// not: readers of either age then find the same. A name of a float dtype that is
// there already stays if keep is set. With dt tensor.Stored, where the model has
// no floats, nothing is set. The objects in it, such as text_config, are treated
// likewise, but nothing is added there.
func rewriteConfig(data []byte, dt tensor.DType, keep bool) ([]byte, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	members, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	r := rewriter{dt, keep}
	members, _ = r.object(members, 1)
	if dt != tensor.Stored && !slices.ContainsFunc(members, func(m member) bool { return m.key == dtypeKeys[0] }) {
		value := r.quoted()
		if i := slices.IndexFunc(members, member.isDType); i >= 0 {
			value = members[i].value
		}
		members = append(members, member{name: []byte(strconv.Quote(dtypeKeys[0])), value: value})
	}
	return append(encodeObject(members, 1), '\n'), nil
}

// rewriter makes the objects of a config those of a plain model.
type rewriter struct {
	dt   tensor.DType
	keep bool
}

func (r rewriter) quoted() []byte { return []byte(strconv.Quote(r.dt.Torch())) }

// object rewrites the members of an object at a depth, and reports whether they
// differ from what they were.
func (r rewriter) object(members []member, depth int) ([]member, bool) {
	n := len(members)
	members = slices.DeleteFunc(members, func(m member) bool { return m.key == "quantization_config" })
	changed := len(members) != n
	own := r.quoted()
	if i := slices.IndexFunc(members, func(m member) bool { return m.isDType() && namesFloat(m.value) }); i >= 0 && r.keep {
		own = members[i].value // for a second key that names none
	}
	for i := range members {
		m := &members[i]
		value := m.value
		switch {
		case m.isDType():
			value = r.dtype(value, own, depth)
		case value[0] == '{' && depth < maxNesting:
			value = r.nested(value, depth+1)
		}
		if !bytes.Equal(value, m.value) {
			m.value, changed = value, true
		}
	}
	return members, changed
}

// nested rewrites the text of an object. One in which nothing changes, or that
// cannot be read, stays as it stands.
func (r rewriter) nested(text []byte, depth int) []byte {
	members, err := parseObject(text)
	if err != nil {
		return text
	}
	members, changed := r.object(members, depth)
	if !changed {
		return text
	}
	return encodeObject(members, depth)
}

// dtype is the value for one of dtypeKeys, own where it is to be replaced. Below
// the top, a key of that name may mean something else: only what can be the
// dtype of a model is replaced.
func (r rewriter) dtype(value, own []byte, depth int) []byte {
	float := namesFloat(value)
	switch {
	case r.dt == tensor.Stored, r.keep && float:
		return value
	case depth > 1 && !float && string(value) != "null" && string(value) != `"auto"`:
		return value
	}
	return own
}

func (m member) isDType() bool { return slices.Contains(dtypeKeys, m.key) }

// namesFloat reports whether a JSON value is the name of a float dtype, and not
// "auto" or null.
func namesFloat(value []byte) bool {
	var name string
	if json.Unmarshal(value, &name) != nil {
		return false
	}
	dt, ok := tensor.FromTorch(name)
	return ok && dt.IsFloat()
}

// parseObject splits the text of a JSON object into its members. It looks no
// deeper than strings and brackets, since configs hold what JSON does not have:
// Python writes Infinity and NaN.
func parseObject(text []byte) ([]member, error) {
	s := scanner{text: text}
	if !s.skip('{') {
		return nil, errors.New("not a JSON object")
	}
	var members []member
	for !s.skip('}') {
		if len(members) > 0 && !s.skip(',') {
			return nil, s.unexpected()
		}
		m := member{name: s.value()}
		if err := json.Unmarshal(m.name, &m.key); err != nil {
			return nil, fmt.Errorf("key before byte %d: %w", s.at, err)
		}
		if !s.skip(':') {
			return nil, s.unexpected()
		}
		if m.value = s.value(); len(m.value) == 0 {
			return nil, s.unexpected()
		}
		members = append(members, m)
	}
	if s.space(); s.at < len(text) {
		return nil, s.unexpected()
	}
	return members, nil
}

// scanner is a place in a text of JSON.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) unexpected() error {
	if s.at >= len(s.text) {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("unexpected %q at byte %d", s.text[s.at], s.at)
}

func (s *scanner) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

// skip skips space and then c, if it is next.
func (s *scanner) skip(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value returns the text of the next value, which ends before a comma, colon or
// closing bracket of the object that it is in.
func (s *scanner) value() []byte {
	s.space()
	start, depth := s.at, 0
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '"':
			s.str()
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return bytes.TrimSpace(s.text[start:s.at])
			}
			depth--
		case ',', ':':
			if depth == 0 {
				return bytes.TrimSpace(s.text[start:s.at])
			}
		}
	}
	return nil
}

// str goes from the quote that opens a string to the one that closes it.
func (s *scanner) str() {
	for s.at++; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
}

// encodeObject writes an object at a depth with a line for each member.
func encodeObject(members []member, depth int) []byte {
	indent := strings.Repeat("  ", depth)
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n%s%s: %s", indent, m.name, m.value)
	}
	return append(b, "\n"+indent[2:]+"}"...)
}
