package pytorch

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A str of Python may hold surrogates, the halves of a character beyond U+FFFF,
// which UTF-8 does not have. Pickles write each as if it were a character, in
// three bytes, and strings keep those bytes: keys that differ stay different.
// What is shown to others is made readable first.

// codePoint decodes the first code point of s, surrogates included. Where the
// bytes are neither, it returns utf8.RuneError and 1.
func codePoint(s string) (r rune, n int) {
	if len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return utf8.DecodeRuneInString(s)
}

// appendCodePoint is utf8.AppendRune with surrogates.
func appendCodePoint(b []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(b, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(b, r)
}

// wellFormed reports whether s is UTF-8 apart from surrogates.
func wellFormed(s string) bool {
	if utf8.ValidString(s) {
		return true
	}
	for len(s) > 0 {
		r, n := codePoint(s)
		if r == utf8.RuneError && n == 1 {
			return false
		}
		s = s[n:]
	}
	return true
}

// readable makes s UTF-8: a pair of surrogates becomes the character that it
// stands for, a lone one its escape.
func readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := codePoint(s)
		if utf16.IsSurrogate(r) {
			low, k := codePoint(s[n:])
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				r, n = pair, n+k
			}
		}
		if utf16.IsSurrogate(r) {
			b.WriteString(`\u` + pad(r, 4))
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}
