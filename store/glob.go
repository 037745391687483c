package store

import (
	"fmt"
	"regexp"
	"strings"
)

// CheckGlobs reports the first pattern that WithInclude and WithExclude would
// not take.
func CheckGlobs(patterns []string) error {
	_, err := globs(patterns)
	return err
}

// globs compiles patterns over whole tensor names: * matches any run of bytes,
// dots and slashes included, ? any one character, [a-z] and [!a-z] a class. A
// backslash quotes the next character. It returns nil for no patterns.
func globs(patterns []string) (*regexp.Regexp, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	alts := make([]string, len(patterns))
	for i, p := range patterns {
		re := globExpr(p)
		if _, err := regexp.Compile(re); err != nil {
			return nil, fmt.Errorf("bad glob %q: %w", p, err)
		}
		alts[i] = re
	}
	return regexp.Compile(`(?s)^(?:` + strings.Join(alts, "|") + `)$`)
}

func globExpr(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			end := strings.IndexByte(p[i+1:], ']')
			if end < 0 {
				return "[" // an open class: let the compiler complain
			}
			class := strings.ReplaceAll(p[i+1:i+1+end], `\`, `\\`)
			if strings.HasPrefix(class, "!") {
				class = "^" + class[1:]
			}
			b.WriteString("[" + class + "]")
			i += end + 1
		case '\\':
			if i+1 < len(p) {
				i++
			}
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	return b.String()
}
