package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"nibble/internal/rule"
)

func TestTimeText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 412 * time.Microsecond: "412 µs", 999999 * time.Nanosecond: "999 µs",
		time.Millisecond: "1.00 ms", 9900 * time.Microsecond: "9.90 ms", 9999 * time.Microsecond: "10.0 ms",
		99999 * time.Microsecond: "100 ms", 451 * time.Millisecond: "451 ms",
		time.Second: "1.00 s", 12345 * time.Millisecond: "12.3 s", time.Hour: "3600 s",
	} {
		if got := timeText(d); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
}

func TestQuoteName(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.0.weight": "model.layers.0.weight", "two words": "two words", "层.0": "层.0", `a"b\c`: `a"b\c`,
		"": `""`, "a\x00b": `"a\x00b"`, "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "\xff": `"\xff"`,
		" a": `" a"`, `"a"`: `"\"a\""`,
		"a\u202eb": `"a\u202eb"`, // turns the rest of the line around
	} {
		if got := quoteName(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestCountText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 views", 1: "1 view", 2: "2 views", 90000: "90,000 views"} {
		if got := countText(n, "view"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

// A row shows file and tensor itself; what is left is rule, reason and byte.
func TestCause(t *testing.T) {
	e := rule.New(rule.Offsets, "overlap").At(7).For("w")
	e.Path = "m.safetensors"
	if got, want := cause(fmt.Errorf("wrapped: %w", e)), "ST-006: overlap (at byte 7)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := cause(errors.New("plain")); got != "plain" {
		t.Errorf("got %q", got)
	}
}

// A file can name its tensors, shards and classes to move the cursor of
// whoever reads an error.
func TestSeen(t *testing.T) {
	for message, want := range map[string]string{
		"plain: \"w\": BNB-101":            "plain: \"w\": BNB-101",
		"层 ü":                              "层 ü",
		"\x1b]0;title\x07 \r\t":            `\x1b]0;title\a \r\t`,
		"\u202egnp.exe":                    `\u202egnp.exe`,
		"broken \xff\xc3 end, \uFFFD kept": "broken \\xff\\xc3 end, \uFFFD kept",
	} {
		if got := seen(message); got != want {
			t.Errorf("%q is shown as %q, want %q", message, got, want)
		}
	}
}
