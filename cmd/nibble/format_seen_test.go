package main

import "testing"

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
