package safetensors

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"nibble/tensor"
)

// agree checks that the scanner accepts only what the complete parser accepts,
// with the same result, and reports whether it did accept.
func agree(t *testing.T, header []byte, size int64) bool {
	t.Helper()
	dataStart := prefixLen + int64(len(header))
	fast, ok := scan(header, dataStart, size)
	if !ok {
		return false
	}
	slow, err := parseComplete(header, dataStart, size)
	if err != nil {
		t.Fatalf("the scanner accepts %q, the complete parser says %v", header, err)
	}
	if !slices.EqualFunc(fast.Tensors, slow.Tensors, same) || fast.DataStart != slow.DataStart ||
		(fast.Metadata == nil) != (slow.Metadata == nil) || !maps.Equal(fast.Metadata, slow.Metadata) {
		t.Fatalf("%q:\nscanner  %+v\ncomplete %+v", header, fast, slow)
	}
	for i, want := range slow.Tensors {
		if j, ok := fast.Lookup(want.Name); !ok || j != i {
			t.Fatalf("Lookup(%q) = %d, %v; want %d", want.Name, j, ok, i)
		}
	}
	return true
}

// TestScanAgrees runs both parsers over every header of this package's tests,
// and over each of them with one byte changed, left out or doubled.
func TestScanAgrees(t *testing.T) {
	try := func(header string, data int) {
		size := int64(8 + len(header) + data)
		agree(t, []byte(header), size)
		for i := range len(header) {
			for _, c := range []string{"", header[i:i+1] + header[i:i+1], " ", "0", `"`, `\`, "}", "é", "\xff", "\x00"} {
				changed := header[:i] + c + header[i+1:]
				agree(t, []byte(changed), size+int64(len(changed)-len(header)))
			}
		}
	}
	for _, c := range acceptances {
		try(c.header, c.data)
	}
	for _, c := range refusals {
		try(c.header, c.data)
	}
}

// TestScanKnows lists what the scanner must read itself: a layout that fell
// back would be right, and ten times slower.
func TestScanKnows(t *testing.T) {
	for name, want := range map[string]bool{
		"spaces of Python":                     true,
		"no elements at start, middle and end": true,
		"bytes in another order":               true,
		"sub-byte types":                       true,
		"metadata last":                        true,
		"escapes":                              false,
		"unknown keys":                         false,
	} {
		i := slices.IndexFunc(acceptances, func(c struct {
			name   string
			header string
			data   int
			want   []Tensor
		}) bool {
			return c.name == name
		})
		c := acceptances[i]
		if got := agree(t, []byte(c.header), int64(8+len(c.header)+c.data)); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	for _, layout := range []string{"compact", "python"} {
		header, end := model(1000, layout)
		if !agree(t, header, 8+int64(len(header))+end) {
			t.Errorf("%s: falls back", layout)
		}
	}
}

// TestScanNames puts each special character at each place of a word.
func TestScanNames(t *testing.T) {
	for n := range 20 {
		for at := range n + 1 {
			for _, c := range []string{"", "!", "#", "[", "]", " ", "\x1f", "\x7f", "é", "層", "😀", "\x80", "\xff", "\xed\xa0\x80", `\"`, `\\`, `"`} {
				name := strings.Repeat("x", at) + c + strings.Repeat("y", n-at)
				header := `{"` + name + `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`
				ok := agree(t, []byte(header), int64(8+len(header)))
				if plain := !slices.Contains([]string{"\x1f", "\x80", "\xff", "\xed\xa0\x80", `\"`, `\\`, `"`}, c); ok != plain {
					t.Errorf("%q: scanner accepts: %v", name, ok)
				}
			}
		}
	}
}

// model makes the header of a quantized model with n tensors, and the end of
// its data. The layouts are compact and python, as the two writers have it.
func model(n int, layout string) (header []byte, end int64) {
	parts := []struct {
		suffix, dtype string
		shape         tensor.Shape
		bytes         int64
	}{
		{"weight", "U8", tensor.Shape{8388608, 1}, 8388608},
		{"weight.absmax", "U8", tensor.Shape{262144}, 262144},
		{"weight.nested_absmax", "F32", tensor.Shape{1024}, 4096},
		{"weight.nested_quant_map", "F32", tensor.Shape{256}, 1024},
		{"weight.quant_map", "F32", tensor.Shape{16}, 64},
		{"weight.quant_state.bitsandbytes__nf4", "U8", tensor.Shape{129}, 129},
		{"bias", "BF16", tensor.Shape{4096}, 8192},
	}
	colon, comma := ":", ","
	if layout == "python" {
		colon, comma = ": ", ", "
	}
	header = fmt.Appendf(nil, `{"__metadata__"%s{"format"%[1]s"pt"}`, colon)
	for i := range n {
		p := parts[i%len(parts)]
		shape := strings.ReplaceAll(strings.Join(strings.Fields(fmt.Sprint([]int64(p.shape))), ","), ",", comma)
		header = fmt.Appendf(header, `%s"model.layers.%d.self_attn.q_proj.%s"%s{"dtype"%[4]s"%[5]s"%[1]s"shape"%[4]s%[6]s%[1]s"data_offsets"%[4]s[%[7]d%[1]s%[8]d]}`,
			comma, i/len(parts), p.suffix, colon, p.dtype, shape, end, end+p.bytes)
		end += p.bytes
	}
	header = append(header, '}')
	return append(header, strings.Repeat(" ", 7-(len(header)+7)%8)...), end
}

// shuffled is a model whose header is in another order than its bytes.
func shuffled(n int) (header []byte, end int64) {
	ordered, end := model(n, "compact")
	entries := strings.Split(strings.TrimRight(string(ordered), " }"), "},")
	r := rand.New(rand.NewPCG(1, 2))
	rest := entries[1:]
	rest[len(rest)-1] = strings.TrimSuffix(rest[len(rest)-1], "}")
	r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return []byte(strings.Join(entries, "},") + "}}"), end
}

var sink *Header

// BenchmarkHeader parses the headers of a large model: with validation and
// index, as Parse does it. Bytes are those of the header.
func BenchmarkHeader(b *testing.B) {
	const tensors = 100_000
	compact, end := model(tensors, "compact")
	python, _ := model(tensors, "python")
	mixed, _ := shuffled(tensors)
	run := func(name string, header []byte, parse func([]byte, int64, int64) (*Header, error)) {
		b.Run(name, func(b *testing.B) {
			dataStart := prefixLen + int64(len(header))
			b.SetBytes(int64(len(header)))
			b.ReportAllocs()
			for b.Loop() {
				h, err := parse(header, dataStart, dataStart+end)
				if err != nil || len(h.Tensors) != tensors {
					b.Fatal(err)
				}
				sink = h
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tensors, "ns/tensor")
		})
	}
	run("impl=scan/layout=compact/tensors=100000", compact, Parse)
	run("impl=scan/layout=python/tensors=100000", python, Parse)
	run("impl=scan/layout=shuffled/tensors=100000", mixed, Parse)
	run("impl=complete/layout=compact/tensors=100000", compact, parseComplete)
	run("impl=encoding-json/layout=compact/tensors=100000", compact, parseStd)
}

// parseStd is what a reader on encoding/json does, without most checks: the
// yardstick of the benchmark.
func parseStd(header []byte, dataStart, size int64) (*Header, error) {
	var entries map[string]struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, err
	}
	delete(entries, metadataKey)
	h := &Header{DataStart: dataStart, Tensors: make([]Tensor, 0, len(entries))}
	for name, e := range entries {
		d, ok := tensor.FromSafetensors(e.DType)
		if n, err := byteSize(d, e.Shape); !ok || err != nil || n != e.Offsets[1]-e.Offsets[0] {
			return nil, fmt.Errorf("%s: %v", name, err)
		}
		h.Tensors = append(h.Tensors, Tensor{name, d, e.Shape, dataStart + e.Offsets[0], dataStart + e.Offsets[1]})
	}
	slices.SortFunc(h.Tensors, byOffset)
	return h, nil
}

// BenchmarkLookup finds tensors by name among 100,000.
func BenchmarkLookup(b *testing.B) {
	header, end := model(100_000, "compact")
	h, err := Parse(header, 8+int64(len(header)), 8+int64(len(header))+end)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % len(h.Tensors)
		if j, ok := h.Lookup(h.Tensors[i].Name); !ok || j != i {
			b.Fatal(i, j)
		}
	}
}
