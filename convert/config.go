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

// rewriteConfig makes the config of a quantized model that of a plain one. The
// order of its keys and all other values stay as they are.
//
// Whichever of dtypeKeys is there is set to dt, and torch_dtype added if none
// is. A name of a float dtype that is there already stays if keep is set. With
// dt tensor.Stored, where the model has no floats, nothing is set.
func rewriteConfig(data []byte, dt tensor.DType, keep bool) ([]byte, error) {
	members, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m member) bool { return m.key == "quantization_config" })
	if dt != tensor.Stored {
		members = setDType(members, dt, keep)
	}
	return encodeObject(members), nil
}

func setDType(members []member, dt tensor.DType, keep bool) []member {
	value := []byte(strconv.Quote(dt.Torch()))
	found := false
	for i := range members {
		if !slices.Contains(dtypeKeys, members[i].key) {
			continue
		}
		found = true
		if !keep || !namesFloat(members[i].value) {
			members[i].value = value
		}
	}
	if !found {
		members = append(members, member{name: []byte(strconv.Quote(dtypeKeys[0])), value: value})
	}
	return members
}

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

// encodeObject writes an object with a line for each member.
func encodeObject(members []member) []byte {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n  %s: %s", m.name, m.value)
	}
	return append(b, "\n}\n"...)
}
