package quant

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/rule"
	"nibble/tensor"
)

const golden = "../testdata/golden"

// manifest is the part of the golden vectors' manifest that matters here.
type manifest struct {
	Cases []struct {
		Path, Container string
		Tensors         []struct {
			Name, Kind    string
			Nested        bool
			Shape         tensor.Shape
			RestoredDType string `json:"restored_dtype"`
			SHA256        map[string]string
		}
		NaNCanonical bool `json:"nan_canonical"`
	}
	Hostile []struct {
		Path, Level, Expect, Reason, Code, Tensor string
		BnbResult                                 struct{ SHA256 string } `json:"bnb_result"`
	}
}

func readManifest(t *testing.T) *manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// entry is one stored tensor of a safetensors file.
type entry struct {
	stored Stored
	data   []byte
}

// checkpoint is what a safetensors file, or an index and its shards, stores:
// read simply, for trusted files.
type checkpoint map[string]entry

func readCheckpoint(t *testing.T, path string) checkpoint {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint{}
	if !strings.HasSuffix(path, ".index.json") {
		c.add(t, data)
		return c
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	shards := map[string]bool{}
	for _, shard := range index.WeightMap {
		if shards[shard] {
			continue
		}
		shards[shard] = true
		data, err := os.ReadFile(filepath.Join(filepath.Dir(path), shard))
		if err != nil {
			t.Fatal(err)
		}
		c.add(t, data)
	}
	return c
}

func (c checkpoint) add(t *testing.T, data []byte) {
	t.Helper()
	n := binary.LittleEndian.Uint64(data)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	for name, raw := range header {
		var e struct {
			DType   string
			Shape   tensor.Shape
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		dt, ok := tensor.FromSafetensors(e.DType)
		if !ok {
			t.Fatalf("dtype %q", e.DType)
		}
		body := data[8+n:][e.Offsets[0]:e.Offsets[1]]
		c[name] = entry{Stored{DType: dt, Shape: e.Shape, Bytes: int64(len(body))}, body}
	}
}

// companion finds a companion of a tensor, nil when there is none.
func (c checkpoint) companion(name string) (*Stored, []byte) {
	e, ok := c[name]
	if !ok {
		return nil, nil
	}
	return &e.stored, e.data
}

const statePrefix = ".quant_state.bitsandbytes__"

// open makes the decoder of a logical tensor and gathers its parts, as the
// store does.
func (c checkpoint) open(name string) (Decoder, [][]byte, error) {
	e := c[name]
	module := strings.TrimSuffix(name, ".weight")
	if scb, scbData := c.companion(module + ".SCB"); scb != nil || e.stored.DType == tensor.I8 && c[module+".weight_format"].data != nil {
		if f, ok := c[module+".weight_format"]; ok {
			if err := CheckWeightFormat(f.data); err != nil {
				return nil, nil, err
			}
		}
		d, err := NewInt8(e.stored, scb)
		return d, [][]byte{e.data, scbData}, err
	}
	var st *State
	for key, s := range c {
		typ, ok := strings.CutPrefix(key, name+statePrefix)
		if !ok {
			continue
		}
		if st != nil {
			return nil, nil, rule.New(rule.QuantClash, "two quant states")
		}
		var err error
		if st, err = ParseState(s.data); err != nil {
			return nil, nil, err
		}
		st.NameType = typ
	}
	if st == nil {
		n, _ := e.stored.Shape.Numel()
		return NewPlain(n, e.stored.DType), [][]byte{e.data}, nil
	}
	absmax, absmaxData := c.companion(name + ".absmax")
	qmap, _ := c.companion(name + ".quant_map")
	nested, nestedData := c.companion(name + ".nested_absmax")
	nmap, nmapData := c.companion(name + ".nested_quant_map")
	d, err := NewFourBit(st, FourBitParts{e.stored, absmax, qmap, nested, nmap})
	if err != nil {
		return nil, nil, err
	}
	parts := [][]byte{e.data, absmaxData, nestedData, nmapData}
	return d, parts[:d.Parts()], nil
}

// decode brings elements [lo, hi) of whole parts, and no byte more.
func decode(d Decoder, dst []byte, dt tensor.DType, lo, hi int64, whole [][]byte, w Write) {
	parts := make([][]byte, len(whole))
	for p := range whole {
		off, n := d.Span(p, lo, hi)
		parts[p] = whole[p][off : off+n : off+n]
	}
	d.Decode(dst, dt, lo, hi, parts, w)
}

func decodeAll(d Decoder, dt tensor.DType, whole [][]byte) []byte {
	n, ok := tensor.Bytes(d.Numel(), dt)
	if !ok {
		panic("numel")
	}
	dst := make([]byte, n)
	decode(d, dst, dt, 0, d.Numel(), whole, Auto)
	return dst
}

// digest is the sha256 of decoded elements in little-endian order.
func digest(data []byte, dt tensor.DType, canonicalNaN bool) string {
	little := make([]byte, len(data))
	tensor.LittleEndian(little, data, dt.WordSize())
	if canonicalNaN {
		canonical(little, dt)
	}
	sum := sha256.Sum256(little)
	return hex.EncodeToString(sum[:])
}

// canonical replaces every NaN by the one that the vectors were hashed with.
func canonical(little []byte, dt tensor.DType) {
	for i := 0; i < len(little); i += dt.Size() {
		b := little[i:]
		switch {
		case dt == tensor.F32 && math.IsNaN(float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))):
			binary.LittleEndian.PutUint32(b, 0x7fc00000)
		case dt == tensor.F16 && binary.LittleEndian.Uint16(b)&0x7fff > 0x7c00:
			binary.LittleEndian.PutUint16(b, 0x7e00)
		case dt == tensor.BF16 && binary.LittleEndian.Uint16(b)&0x7fff > 0x7f80:
			binary.LittleEndian.PutUint16(b, 0x7fc0)
		}
	}
}

// Every tensor of every golden safetensors file must decode to the values that
// bitsandbytes gives, in each dtype.
func TestGolden(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		tensors := 0
		for _, c := range readManifest(t).Cases {
			if !strings.HasPrefix(c.Container, "safetensors") {
				continue
			}
			file := readCheckpoint(t, filepath.Join(golden, c.Path))
			for _, want := range c.Tensors {
				tensors++
				d, parts, err := file.open(want.Name)
				if err != nil {
					t.Errorf("%s: %s: %v", c.Path, want.Name, err)
					continue
				}
				restored, _ := tensor.FromTorch(want.RestoredDType)
				if d.DType() != restored {
					t.Errorf("%s: %s restores to %v; want %v", c.Path, want.Name, d.DType(), restored)
				}
				for name, sum := range want.SHA256 {
					dt, ok := tensor.Parse(name)
					if name == "restored" {
						dt, ok = d.DType(), true
					}
					if !ok || !d.Can(dt) {
						t.Errorf("%s: %s cannot decode to %v", c.Path, want.Name, name)
						continue
					}
					if got := digest(decodeAll(d, dt, parts), dt, c.NaNCanonical); got != sum {
						t.Errorf("%s: %s as %v: sha256 %s; want %s", c.Path, want.Name, name, got, sum)
					}
				}
			}
		}
		if tensors < 200 {
			t.Errorf("only %d tensors seen", tensors)
		}
	})
}

// ruleOf says which rule each broken file of the golden set breaks, where the
// manifest does not.
var ruleOf = map[string]rule.ID{
	"quant_type_disagrees":     rule.QuantClash,
	"nested_blocksize_str":     rule.Nested,
	"nested_blocksize_0":       rule.Nested,
	"absmax_short_plain":       rule.CompanionLen,
	"absmax_long_plain":        rule.CompanionLen,
	"absmax_short_nested":      rule.CompanionLen,
	"absmax_long_nested":       rule.CompanionLen,
	"absmax_empty":             rule.CompanionLen,
	"packed_too_few":           rule.CompanionLen,
	"packed_too_many":          rule.CompanionLen,
	"quant_map_len_15":         rule.CompanionLen,
	"nested_quant_map_missing": rule.Nested,
	"nested_absmax_missing":    rule.Nested,
	"nested_quant_map_len":     rule.Nested,
	"nested_absmax_short":      rule.Nested,
	"nested_offset_nan":        rule.Nested,
	"nested_offset_inf":        rule.Nested,
	"nested_offset_missing":    rule.Nested,
	"json_not_utf8":            rule.QuantJSON,
	"json_truncated":           rule.QuantJSON,
	"json_duplicate_keys":      rule.QuantJSON,
	"json_array":               rule.QuantJSON,
	"json_empty":               rule.QuantJSON,
	"json_trailing":            rule.QuantJSON,
	"shape_overflow":           rule.QuantShape,
	"shape_negative":           rule.QuantShape,
	"shape_smaller":            rule.CompanionLen,
	"shape_null":               rule.QuantShape,
	"shape_string":             rule.QuantShape,
	"dtype_float8":             rule.QuantShape,
	"dtype_module":             rule.QuantShape,
	"two_quant_state_keys":     rule.QuantClash,
	"absmax_missing":           rule.Companion,
	"absmax_bf16_transposed":   rule.CompanionLen,
	"int8_scb_short":           rule.SCB,
	"int8_scb_cols":            rule.SCB,
	"int8_weight_format_1":     rule.WeightFormat,
}

// Every broken file must be refused with its rule; the two that may be
// accepted must then give what bitsandbytes gives.
func TestGoldenHostile(t *testing.T) {
	for _, h := range readManifest(t).Hostile {
		if h.Level != "quant" || !strings.HasSuffix(h.Path, ".safetensors") {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(h.Path), ".safetensors")
		t.Run(name, func(t *testing.T) {
			want := rule.ID(h.Code)
			if want == "" {
				want = ruleOf[name]
			}
			d, parts, err := readCheckpoint(t, filepath.Join(golden, h.Path)).open(h.Tensor)
			if want == "" {
				if err != nil {
					t.Fatalf("%v", err)
				}
				if got := digest(decodeAll(d, d.DType(), parts), d.DType(), false); got != h.BnbResult.SHA256 {
					t.Fatalf("sha256 %s; bitsandbytes gives %s", got, h.BnbResult.SHA256)
				}
				return
			}
			var e *rule.Error
			if !errors.As(err, &e) || e.Rule != want {
				t.Fatalf("%s: got %v; want rule %s", h.Reason, err, want)
			}
			t.Log(err)
		})
	}
}

// Any cut of a tensor into ranges must give the same bytes as decoding it
// whole: odd starts, ends in the middle of a byte or a block, misaligned
// sources and destinations, and no byte outside the spans.
func TestGoldenInPieces(t *testing.T) {
	forEachKernel(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, path := range []string{
			"st4/grid_nf4_plain.safetensors", "st4/grid_nf4_nested.safetensors", "st4/grid_fp4_nested.safetensors",
			"st4/shapes.safetensors", "st4/nested_multi.safetensors", "st4/cpu_resaved_nested_dtype.safetensors",
			"st4/plain_dtypes.safetensors", "int8/linear8bitlt.safetensors", "int8/sweep.safetensors",
		} {
			file := readCheckpoint(t, filepath.Join(golden, path))
			for name := range file {
				d, parts, err := file.open(name)
				if err != nil {
					t.Fatal(err)
				}
				for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, d.DType()} {
					if d.Can(dt) {
						inPieces(t, rnd, path+": "+name, d, dt, parts)
					}
				}
			}
		}
	})
}

func inPieces(t *testing.T, rnd *rand.Rand, what string, d Decoder, dt tensor.DType, parts [][]byte) {
	t.Helper()
	want := decodeAll(d, dt, parts)
	size := int64(dt.Size())
	got := make([]byte, len(want)+3)[rnd.IntN(4):][:len(want)]
	for lo := int64(0); lo < d.Numel(); {
		hi := min(d.Numel(), lo+rnd.Int64N(2+d.Numel()/3))
		decode(d, got[lo*size:hi*size], dt, lo, hi, shifted(rnd, parts), Write(rnd.IntN(3)))
		lo = hi
	}
	if string(got) != string(want) {
		t.Errorf("%s as %v: pieces differ from the whole", what, dt)
	}
}

// shifted copies parts to other alignments.
func shifted(rnd *rand.Rand, parts [][]byte) [][]byte {
	moved := make([][]byte, len(parts))
	for i, p := range parts {
		moved[i] = append(make([]byte, rnd.IntN(8)), p...)
		moved[i] = moved[i][len(moved[i])-len(p):]
	}
	return moved
}
