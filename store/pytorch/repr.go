package pytorch

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"nibble/tensor"
)

// keyName writes a dict key as a part of a name: a string as it is, anything
// else as Python's repr shows it.
func keyName(b *strings.Builder, key value) {
	switch k := key.(type) {
	case string:
		b.WriteString(readable(k))
	case int64:
		b.WriteString(strconv.FormatInt(k, 10))
	default:
		var r strings.Builder
		repr(&r, key, maxReprDepth)
		b.WriteString(r.String())
	}
}

// Keys are small; what goes beyond is cut.
const (
	maxReprDepth = 8
	maxRepr      = 4096
)

func repr(b *strings.Builder, v value, depth int) {
	if depth == 0 || b.Len() > maxRepr {
		b.WriteString("...")
		return
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(reprFloat(v))
	case string:
		reprString(b, v)
	case bytesValue:
		b.WriteByte('b')
		reprBytes(b, string(v))
	case *tuple:
		reprTuple(b, v.items, depth-1)
	case *global:
		b.WriteString("<class '" + v.String() + "'>")
	case *storageClass:
		b.WriteString("<class 'torch." + v.name + "'>")
	case tensor.DType:
		b.WriteString("torch." + v.Torch())
	case long:
		b.WriteString("<str of " + strconv.FormatInt(v.n, 10) + " bytes>")
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
}

func reprTuple(b *strings.Builder, items []value, depth int) {
	b.WriteByte('(')
	for i, it := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		repr(b, it, depth)
		if b.Len() > maxRepr {
			break
		}
	}
	if len(items) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
}

// reprFloat is the shortest decimal that reads back as f, in Python's style.
func reprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote is the quote that Python chooses for s.
func quote(s string) byte {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return '"'
	}
	return '\''
}

func reprString(b *strings.Builder, s string) {
	q := quote(s)
	b.WriteByte(q)
	for n := 0; len(s) > 0; s = s[n:] {
		var r rune
		switch r, n = codePoint(s); {
		case reprEscape(b, r, q):
		case r < 0x20 || r == 0x7f:
			writeHex(b, r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			writeHex(b, r)
		case r <= 0xffff:
			b.WriteString(`\u` + pad(r, 4))
		default:
			b.WriteString(`\U` + pad(r, 8))
		}
	}
	b.WriteByte(q)
}

func reprBytes(b *strings.Builder, s string) {
	q := quote(s)
	b.WriteByte(q)
	for i := range len(s) {
		switch c := rune(s[i]); {
		case reprEscape(b, c, q):
		case c < 0x20 || c >= 0x7f:
			writeHex(b, c)
		default:
			b.WriteByte(s[i])
		}
	}
	b.WriteByte(q)
}

func reprEscape(b *strings.Builder, r rune, q byte) bool {
	switch r {
	case '\\', rune(q):
		b.WriteByte('\\')
		b.WriteRune(r)
	case '\n':
		b.WriteString(`\n`)
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	default:
		return false
	}
	return true
}

func writeHex(b *strings.Builder, r rune) { b.WriteString(`\x` + pad(r, 2)) }

func pad(r rune, n int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", n-len(s)) + s
}
