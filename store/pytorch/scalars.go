package pytorch

import (
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"nibble/internal/rule"
)

// Opcodes that push numbers and strings.

// Longer integers are refused: Python does the same for decimal digits, and
// torch's own have at most ten bytes.
const (
	maxDigits    = 4300
	maxLongBytes = 2048
)

func (m *machine) fixedInt(n int, signed bool) error {
	u, err := m.uint(n)
	if err != nil {
		return err
	}
	if signed {
		u = uint64(int64(int32(uint32(u))))
	}
	m.pushInt(int64(u))
	return nil
}

func (m *machine) pushInt(i int64) {
	m.meter.charge(costBox)
	m.push(i)
}

// textInt is INT, which protocol 0 also uses for booleans.
func (m *machine) textInt() error {
	s, err := m.number()
	if err != nil {
		return err
	}
	switch s {
	case "00":
		m.push(false)
		return nil
	case "01":
		m.push(true)
		return nil
	}
	return m.decimal(s)
}

func (m *machine) textLong() error {
	s, err := m.number()
	if err != nil {
		return err
	}
	return m.decimal(strings.TrimSuffix(s, "L"))
}

func (m *machine) textFloat() error {
	s, err := m.number()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond the range is inf, as in Python's float
		return m.fail("%.40q is not a float", s)
	}
	m.push(f)
	return nil
}

// number reads a line that holds a number.
func (m *machine) number() (string, error) {
	s, kept, err := m.src.line()
	if err != nil {
		return "", err
	}
	if !kept || len(s) > maxDigits {
		return "", m.src.fail(m.at, rule.TorchLimit, "limit exceeded: a number of more than %d digits", maxDigits)
	}
	return strings.TrimSpace(s), nil
}

func (m *machine) decimal(s string) error {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		m.pushInt(i)
		return nil
	}
	b, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return m.fail("%.40q is not an integer", s)
	}
	m.meter.charge(int64(len(s)) + costContainer)
	m.push(b)
	return nil
}

// binLong is LONG1 and LONG4: a count of n bytes, then a little-endian integer
// in two's complement.
func (m *machine) binLong(n int) error {
	count, err := m.uint(n)
	if err != nil {
		return err
	}
	if n == 4 && count > 1<<31-1 {
		return m.fail("integer of negative length")
	}
	if count > uint64(m.src.left) {
		return m.src.truncated()
	}
	if count > maxLongBytes {
		return m.src.fail(m.at, rule.TorchLimit, "limit exceeded: an integer of %d bytes", count)
	}
	s, _, err := m.src.text(count)
	if err != nil {
		return err
	}
	m.meter.charge(int64(count) + costContainer)
	m.push(integer([]byte(s)))
	return nil
}

// integer decodes little-endian two's complement of any length.
func integer(b []byte) value {
	if len(b) == 0 {
		return int64(0)
	}
	slices.Reverse(b)
	i := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		i.Sub(i, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// counted pushes a string that follows its length of n bytes.
func (m *machine) counted(n int, decode func(string) (value, bool)) error {
	count, err := m.uint(n)
	if err != nil {
		return err
	}
	s, kept, err := m.src.text(count)
	if err != nil {
		return err
	}
	if !kept {
		m.push(long{int64(count)})
		return nil
	}
	return m.pushText(s, decode)
}

func (m *machine) pushText(s string, decode func(string) (value, bool)) error {
	v, ok := decode(s)
	if !ok {
		return m.fail("string that is not UTF-8")
	}
	m.meter.charge(2*int64(len(s)) + costBox)
	m.push(v)
	return nil
}

func decodeRaw(s string) (value, bool) { return bytesValue(s), true }

// decodeUTF8 decodes UTF-8 with surrogates.
func decodeUTF8(s string) (value, bool) { return s, wellFormed(s) }

// decodePy2 decodes a str of Python 2, which is bytes without an encoding:
// UTF-8 if it is that, as Python 2 wrote it, else Latin-1.
func decodePy2(s string) (value, bool) {
	if wellFormed(s) {
		return s, true
	}
	return latin1(s), true
}

func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// textString is STRING: a Python literal in quotes.
func (m *machine) textString() error {
	s, kept, err := m.src.line()
	if err != nil {
		return err
	}
	if !kept {
		m.push(long{maxText})
		return nil
	}
	s = strings.TrimRight(s, " \t\r")
	if len(s) < 2 || s[0] != s[len(s)-1] || (s[0] != '\'' && s[0] != '"') {
		return m.fail("STRING without quotes")
	}
	s, ok := unescape(s[1 : len(s)-1])
	if !ok {
		return m.fail("STRING with a broken escape")
	}
	return m.pushText(s, decodePy2)
}

// unescape undoes the escapes of a bytes literal of Python.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", false
		}
		if j := strings.IndexByte(`\'"abfnrtv`, s[i]); j >= 0 {
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[j])
			continue
		}
		base, first, most := 8, i, 3
		if s[i] == 'x' {
			base, first, most = 16, i+1, 2
		}
		end := first
		for end < len(s) && end-first < most && isDigit(s[end], base) {
			end++
		}
		switch {
		case base == 16 && end-first != 2:
			return "", false
		case end == first: // an unknown escape stands for itself
			b.WriteByte('\\')
			b.WriteByte(s[i])
		default:
			n, _ := strconv.ParseUint(s[first:end], base, 16)
			b.WriteByte(byte(n))
			i = end - 1
		}
	}
	return b.String(), true
}

func isDigit(c byte, base int) bool {
	_, err := strconv.ParseUint(string(rune(c)), base, 8)
	return err == nil
}

// textUnicode is UNICODE: Latin-1 in which \uXXXX and \UXXXXXXXX are code points.
func (m *machine) textUnicode() error {
	s, kept, err := m.src.line()
	if err != nil {
		return err
	}
	if !kept {
		m.push(long{maxText})
		return nil
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		n := 0
		if s[i] == '\\' && i+1 < len(s) {
			switch s[i+1] {
			case 'u':
				n = 4
			case 'U':
				n = 8
			case '\\': // escapes nothing, but begins no escape either
				b = append(b, '\\')
				i++
			}
		}
		if n == 0 {
			b = utf8.AppendRune(b, rune(s[i]))
			continue
		}
		if i+2+n > len(s) {
			return m.fail("UNICODE with a broken escape")
		}
		r, err := strconv.ParseUint(s[i+2:i+2+n], 16, 32)
		if err != nil || r > utf8.MaxRune {
			return m.fail("UNICODE with a broken escape")
		}
		b = appendCodePoint(b, rune(r))
		i += 1 + n
	}
	return m.pushText(string(b), decodeUTF8)
}

// memoIndex reads the decimal index of PUT and GET.
func (m *machine) memoIndex() (uint64, error) {
	s, err := m.number()
	if err != nil {
		return 0, err
	}
	i, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, m.fail("%.40q is not a memo index", s)
	}
	return i, nil
}

func (m *machine) textPut() error {
	i, err := m.memoIndex()
	if err != nil {
		return err
	}
	return m.memoPut(i)
}

func (m *machine) textGet() error {
	i, err := m.memoIndex()
	if err != nil {
		return err
	}
	return m.memoGet(i)
}
