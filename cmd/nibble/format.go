package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"nibble/store"
	"nibble/tensor"
)

// quoteName prints a name for people: as it is when all of it can be seen, else
// Go-quoted, so that a name can neither break a line nor move the cursor. A
// name that begins like a quoted one is quoted, too.
func quoteName(name string) string {
	hidden := func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }
	if name == "" || name[0] == '"' || name != strings.TrimSpace(name) || strings.IndexFunc(name, hidden) >= 0 {
		return strconv.Quote(name)
	}
	return name
}

// seen prints a message for people. What of it came from a file may hold
// anything: characters that cannot be seen are printed as Go escapes them.
func seen(message string) string {
	var b strings.Builder
	for i, r := range message {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(message[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, message[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// sizeText prints bytes in binary units.
func sizeText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// timeText prints a duration with three digits.
func timeText(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return threeDigits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return threeDigits(d.Seconds()) + " s"
}

func threeDigits(x float64) string {
	switch {
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// countText prints n of something: 1 tensor, 2 tensors.
func countText[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

// shapeJSON makes sure that a scalar's shape is [] and not null.
func shapeJSON(s tensor.Shape) tensor.Shape {
	if s == nil {
		return tensor.Shape{}
	}
	return s
}

// dtypeJSON is the name of a dtype, "" where there is none.
func dtypeJSON(d tensor.DType) string {
	if d == tensor.Stored {
		return ""
	}
	return d.String()
}

// kindText prints a shape and a dtype, dashes where a broken tensor has none.
func kindText(s tensor.Shape, dtype string) (shape, d string) {
	switch {
	case dtype != "":
		return s.String(), dtype
	case len(s) == 0:
		return "-", "-"
	}
	return s.String(), "-"
}

// cause prints an error about a tensor whose name and file are shown beside it.
func cause(err error) string {
	var e *store.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	c := *e
	c.Path, c.Tensor = "", ""
	return c.Error()
}
