package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
	"unsafe"

	"nibble/tensor"
)

// The scanner reads headers as writers lay them out: keys in one order, no
// escapes, white space nowhere or where Python puts it. It never judges: what
// it does not know, and what breaks a rule, it leaves to the complete parser.

// A layout is the text between the variable parts of an entry:
//
//	"NAME":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},
type layout struct {
	open, shape, comma, offsets, next string
}

var (
	compact = layout{`:{"dtype":"`, `","shape":[`, `,`, `],"data_offsets":[`, `,"`}         // serde_json
	spaced  = layout{`: {"dtype": "`, `", "shape": [`, `, `, `], "data_offsets": [`, `, "`} // json.dumps
)

// Beyond these, scan falls back.
const (
	maxRank   = 8
	maxDigits = 18 // any number of so many digits fits an int64
)

type scanner struct {
	b      []byte // the header
	pos    int    // of the next byte of b
	data   int64  // absolute offset of the first tensor byte
	layout *layout

	tensors  []Tensor
	dims     []int64 // free room for shapes
	metadata map[string]string

	metadataSeen bool
	unordered    bool  // tensors are not in the order of their bytes
	end          int64 // of the last tensor

	dtypeName []byte // the last name looked up, in b
	dtype     tensor.DType
}

// scan is Parse for the usual header. The names in the result alias b, which
// must not change any more. ok is false if the header is for the complete
// parser.
func scan(b []byte, dataStart, size int64) (h *Header, ok bool) {
	s := scanner{b: b, data: dataStart, layout: layoutOf(b), end: dataStart}
	// An entry of a real model takes more than 96 bytes, so that this holds
	// them all and is less than the header itself.
	s.tensors = make([]Tensor, 0, len(b)/96+1)
	if !s.header() || !s.tiles(size) {
		return nil, false
	}
	h = &Header{Tensors: s.tensors, Metadata: s.metadata, DataStart: dataStart}
	h.names, _, ok = indexNames(h.Tensors)
	return h, ok
}

// layoutOf guesses the layout by what follows the first colon after a quote.
func layoutOf(b []byte) *layout {
	for i := 2; i < len(b); i++ {
		if b[i-2] == '"' && b[i-1] == ':' {
			if b[i] == ' ' {
				return &spaced
			}
			break
		}
	}
	return &compact
}

func (s *scanner) header() bool {
	if !s.accept(`{"`) {
		return false
	}
	for {
		name, ok := s.name()
		if !ok {
			return false
		}
		if name == metadataKey {
			ok = s.readMetadata()
		} else {
			ok = s.entry(name)
		}
		if !ok {
			return false
		}
		if !s.accept(s.layout.next) {
			return s.accept("}") && s.padding()
		}
	}
}

// accept skips the text if it comes next.
func (s *scanner) accept(text string) bool {
	end := s.pos + len(text)
	if end > len(s.b) || string(s.b[s.pos:end]) != text {
		return false
	}
	s.pos = end
	return true
}

func (s *scanner) padding() bool {
	for _, c := range s.b[s.pos:] {
		if c != ' ' {
			return false
		}
	}
	return true
}

// name reads up to the quote that ends a name and skips it.
func (s *scanner) name() (string, bool) {
	start, i := s.pos, plain(s.b, s.pos)
	wide := false
	for ; i < len(s.b) && s.b[i] >= utf8.RuneSelf; i = plain(s.b, i) {
		wide = true
		for i < len(s.b) && s.b[i] >= utf8.RuneSelf {
			i++
		}
	}
	if i >= len(s.b) || s.b[i] != '"' {
		return "", false
	}
	s.pos = i + 1
	if wide && !utf8.Valid(s.b[start:i]) {
		return "", false
	}
	return unsafe.String(unsafe.SliceData(s.b[start:]), i-start), true
}

// plain returns the index of the first byte at or after i that is not a plain
// character of a name: a quote, a backslash, a control character or no ASCII.
func plain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		// The high bit of a byte becomes set where the byte is zero after the
		// xor, or less than a space. A borrow may set bits above the lowest
		// hit, never below it.
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x | x) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// number reads a non-negative integer of up to maxDigits digits.
func (s *scanner) number() (n int64, ok bool) {
	start, i := s.pos, s.pos
	for i < len(s.b) && s.b[i]-'0' <= 9 {
		n = n*10 + int64(s.b[i]-'0')
		i++
	}
	s.pos = i
	digits := i - start
	return n, digits == 1 || 1 < digits && digits <= maxDigits && s.b[start] != '0'
}

// entry reads what follows a name and adds the tensor.
func (s *scanner) entry(name string) bool {
	if !s.accept(s.layout.open) {
		return false
	}
	dtype, ok := s.readDType()
	if !ok || !s.accept(s.layout.shape) {
		return false
	}
	shape, ok := s.shape()
	if !ok || !s.accept(s.layout.offsets) {
		return false
	}
	begin, ok := s.number()
	if !ok || !s.accept(s.layout.comma) {
		return false
	}
	end, ok := s.number()
	if !ok || !s.accept("]}") {
		return false
	}
	n, err := byteSize(dtype, shape)
	if err != nil || n != end-begin {
		return false
	}
	// 18 digits and the largest header are far from overflowing an int64.
	s.add(Tensor{name, dtype, shape, s.data + begin, s.data + end})
	return true
}

func (s *scanner) add(t Tensor) {
	if t.Begin != s.end {
		s.unordered = true
	}
	s.end = t.End
	s.tensors = append(s.tensors, t)
}

// readDType reads up to the quote that ends a dtype, but does not skip it.
func (s *scanner) readDType() (tensor.DType, bool) {
	i := s.pos
	for i < len(s.b) && s.b[i] != '"' {
		i++
	}
	name := s.b[s.pos:i]
	s.pos = i
	if s.dtype != tensor.Stored && bytes.Equal(name, s.dtypeName) { // tensors of a dtype come in runs
		return s.dtype, true
	}
	d, ok := tensor.FromSafetensors(string(name))
	s.dtypeName, s.dtype = name, d
	return d, ok
}

// shape reads up to the bracket that ends a shape, but does not skip it.
func (s *scanner) shape() (tensor.Shape, bool) {
	var dims [maxRank]int64
	rank := 0
	for s.pos < len(s.b) && s.b[s.pos] != ']' {
		if rank == maxRank || rank > 0 && !s.accept(s.layout.comma) {
			return nil, false
		}
		n, ok := s.number()
		if !ok {
			return nil, false
		}
		dims[rank] = n
		rank++
	}
	return s.keep(dims[:rank]), true
}

// keep copies dims into the room shared by the shapes of many tensors.
func (s *scanner) keep(dims []int64) tensor.Shape {
	if cap(s.dims)-len(s.dims) < len(dims) {
		s.dims = make([]int64, 0, min(max(64, 2*cap(s.dims)), 1<<14))
	}
	start := len(s.dims)
	s.dims = append(s.dims, dims...)
	return s.dims[start:len(s.dims):len(s.dims)]
}

// readMetadata lets the complete parser read the value of __metadata__, whose
// strings are free text.
func (s *scanner) readMetadata() bool {
	if s.metadataSeen || !s.accept(":") {
		return false
	}
	s.metadataSeen = true
	p := newParser(s.b[s.pos:], s.data, 0)
	if err := p.readMetadata(); err != nil {
		return false
	}
	s.metadata = p.metadata
	s.pos += int(p.dec.InputOffset())
	return true
}

// tiles reports whether the tensors cover the file from the header to its end,
// each byte once, and puts them in the order of their bytes.
func (s *scanner) tiles(size int64) bool {
	if !s.unordered {
		return s.end == size
	}
	s.tensors = sorted(s.tensors)
	end := s.data
	for i := range s.tensors {
		if s.tensors[i].Begin != end {
			return false
		}
		end = s.tensors[i].End
	}
	return end == size
}

// sorted returns the tensors in the order of byOffset, those that are equal in
// the order that they have. It sorts keys, which are a third of a tensor's
// size and hold no pointers.
func sorted(tensors []Tensor) []Tensor {
	type key struct {
		begin, end int64
		i          int
	}
	keys := make([]key, len(tensors))
	for i := range tensors {
		keys[i] = key{tensors[i].Begin, tensors[i].End, i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.i, b.i))
	})
	list := make([]Tensor, len(tensors))
	for i, k := range keys {
		list[i] = tensors[k.i]
	}
	return list
}
