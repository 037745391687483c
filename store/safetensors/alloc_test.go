package safetensors

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestAllocation opens headers that try to make the reader allocate more than
// they are worth: what it takes is bounded by a multiple of the bytes given.
func TestAllocation(t *testing.T) {
	const size = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, file := range map[string][]byte{
		"length of 100 MB":      append([]byte("\x00\xe1\xf5\x05\x00\x00\x00\x00{"), make([]byte, 100)...),
		"length of 2^64-1":      append(bytes.Repeat([]byte{0xff}, 8), make([]byte, 100)...),
		"braces":                build("{"+fill("{"), 0),
		"brackets":              build(`{"a":`+fill("["), 0),
		"nested unknown":        build(`{"a":{"x":`+fill("["), 0),
		"closing braces":        build("{"+fill("}"), 0),
		"dimensions":            build(`{"a":{"dtype":"U8","shape":[`+fill("0,")+`0],"data_offsets":[0,0]}}`, 0),
		"many digits":           build(`{"a":{"dtype":"U8","shape":[`+fill("1")+`],"data_offsets":[0,0]}}`, 0),
		"unknown keys":          build(`{"a":{`+fill(`"x":0,`), 0),
		"entries without bytes": build(emptyEntries(size), 0),
		"metadata":              build(`{"__metadata__":{`+fill(`"":"",`), 0),
		"escapes":               build(`{"`+fill(`\u0000`)+`":0}`, 0),
		"spaces":                build("{}"+fill(" "), 0),
	} {
		for verb, run := range map[string]func(){
			"Read":   func() { _, _ = read(file) },
			"Verify": func() { _, _ = Verify(bytes.NewReader(file), int64(len(file))) },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run()
			runtime.ReadMemStats(&after)
			if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+60*len(file)); got > limit {
				t.Errorf("%s of %s: %d bytes for %d", verb, name, got, len(file))
			} else if testing.Verbose() {
				t.Logf("%s of %s: %d bytes for %d", verb, name, got, len(file))
			}
		}
	}
}

// emptyEntries is a valid header of about n bytes with as many tensors as fit.
func emptyEntries(n int) string {
	b := []byte("{")
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	b[len(b)-1] = '}'
	return string(b)
}
