package pytorch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"nibble/internal/rule"
)

// hostileRules is where each hostile file is found out: "file RULE" by Read,
// "w RULE" by the tensor or quant state of that name, "ok" not at all, because
// there is nothing wrong with it that concerns this package.
var hostileRules = map[string]string{
	"os_system_zip.pt":     "file PT-003 posix.system",
	"os_system_os.pt":      "file PT-003 os.system",
	"eval_p4.pt":           "file PT-003 builtins.eval",
	"eval_py2.pt":          "file PT-003 __builtin__.eval",
	"os_system_legacy.bin": "file PT-003 posix.system",
	"os_system_bare.pkl":   "file PT-003 os.system",

	"recursive_list.pt":   "ok",
	"recursive_dict.pt":   "ok",
	"billion_laughs.pt":   "ok", // no tensors among its 2^60 leaves
	"deep_nesting.pt":     "file PT-006 1000 deep",
	"long4_huge.pt":       "file PT-002 truncated",
	"binbytes8_huge.pt":   "file PT-002 truncated",
	"binunicode_huge.pt":  "file PT-002 truncated",
	"frame_huge.pt":       "file PT-002 truncated",
	"long_binput_huge.pt": "ok",
	"long_ascii_huge.pt":  "file PT-006 4300 digits",
	"no_stop.pt":          "file PT-002 truncated",
	"truncated_pickle.pt": "file PT-002 truncated",
	"unknown_opcode.pt":   "file PT-002 opcode 0xff",
	"stack_underflow.pt":  "file PT-002 underflow",
	"proto_255.pt":        "file PT-002 protocol 255",
	"module_pickle.pt":    "file PT-004 torch.nn.modules.linear.Linear",

	"geometry_view_oob.pt":        "w PT-005 element 4",
	"geometry_offset_oob.pt":      "w PT-005 element 4",
	"geometry_negative_offset.pt": "w PT-005 negative storage offset",
	"geometry_negative_stride.pt": "w PT-005 negative stride",
	"geometry_negative_size.pt":   "w PT-005 negative",
	"geometry_stride_rank.pt":     "w PT-005 2 dimensions with 1 strides",
	"geometry_size_overflow.pt":   "w PT-005 overflows",
	"geometry_storage_missing.pt": "w PT-005 no zip entry",
	"storage_numel_huge.pt":       "w PT-005 4611686018427387904",
	"storage_numel_negative.pt":   "w PT-005 -4 elements",
	"storage_numel_more.pt":       "w PT-005 truncated",
	"storage_key_traversal.pt":    "w PT-005 no zip entry",
	"storage_class_unknown.pt":    "w PT-004 torch.FooStorage",

	"zip_truncated.pt":        "file PT-001 truncated",
	"zip_no_eocd.pt":          "file PT-001 truncated",
	"zip_no_data_pkl.pt":      "file PT-001 data.pkl",
	"zip_size_lies_big.pt":    "w PT-001 contradicts",
	"zip_size_lies_small.pt":  "w PT-005 4 bytes of 16",
	"zip_usize_mismatch.pt":   "w PT-001 two sizes",
	"zip_loff_past_eof.pt":    "w PT-001 beyond",
	"zip_duplicate_entry.pt":  "w PT-001 duplicate",
	"zip_bad_crc.pt":          "ok", // of a stored entry: checking would read it
	"zip_deflated_storage.pt": "ok",
	"zip_deflated_pickle.pt":  "ok",

	"legacy_truncated.bin":  "file PT-001 truncated",
	"legacy_bad_magic.bin":  "file PT-001 magic",
	"legacy_numel_lies.bin": "file PT-005 1099511627776",
	"legacy_trailing.bin":   "ok",

	// The decoder judges the claims of a quant state, the reader only its form.
	"qs_blocksize_100.pt":   "ok",
	"qs_quant_type_int4.pt": "ok",
	"qs_absmax_short.pt":    "ok",
	"list_state_bad.pt":     "quant BNB-103 4 items",
}

func TestHostile(t *testing.T) {
	seen := 0
	for _, h := range readManifest(t).Hostile {
		if !strings.HasPrefix(h.Path, "hostile/pickle/") {
			continue
		}
		seen++
		t.Run(filepath.Base(h.Path), func(t *testing.T) {
			want, ok := hostileRules[filepath.Base(h.Path)]
			if !ok {
				t.Fatal("no expectation")
			}
			b, err := os.ReadFile(filepath.Join(goldenDir, h.Path))
			if err != nil {
				t.Fatal(err)
			}
			f, err := readBounded(t, b)
			testHostile(t, f, err, want)
			if h.Executes == "" {
				return
			}
			if _, err := os.Stat(h.Executes); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was made: the pickle ran (%v)", h.Executes, err)
			}
		})
	}
	if seen != len(hostileRules) {
		t.Errorf("%d hostile files, %d expectations", seen, len(hostileRules))
	}
}

// testHostile compares what became of a file with "where rule words".
func testHostile(t *testing.T, f *File, err error, want string) {
	t.Helper()
	where, rest, _ := strings.Cut(want, " ")
	var got *rule.Error
	switch where {
	case "ok":
		if err != nil {
			t.Fatal(err)
		}
		return
	case "file":
		errors.As(err, &got)
	case "quant":
		if err != nil || len(f.Quantized) != 1 {
			t.Fatalf("error %v", err)
		}
		got = f.Quantized[0].Err
	default:
		if err != nil {
			t.Fatal(err)
		}
		got = f.Tensors[find(t, f, where)].Err
	}
	id, words, _ := strings.Cut(rest, " ")
	if got == nil || string(got.Rule) != id || !strings.Contains(got.Error(), words) {
		t.Errorf("error %v, want %s with %q", got, id, words)
	}
}

// readBounded reads a file and fails the test when that allocates more than a
// small multiple of its size plus a constant, or takes long. What is measured is
// the total: no peak can be higher, and growing slices count several times.
func readBounded(t testing.TB, b []byte) (*File, error) {
	t.Helper()
	var before, after runtime.MemStats
	begin := time.Now()
	runtime.ReadMemStats(&before)
	f, err := Read(bytes.NewReader(b), int64(len(b)), Limits{})
	runtime.ReadMemStats(&after)
	const constant, multiple = 64 << 20, 512
	if n := after.TotalAlloc - before.TotalAlloc; n > constant+multiple*uint64(len(b)) {
		t.Errorf("a file of %d bytes made Read allocate %d", len(b), n)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("Read took %v", d)
	}
	if f != nil {
		check(t, f, int64(len(b)))
	}
	return f, err
}

// TestWildHostile reads the malicious files of other projects.
func TestWildHostile(t *testing.T) {
	dir := wildDir(t)
	for name, want := range map[string]string{
		"joaopauloschuler__neural-api__evil_torch.bin":             "file PT-003 posix.system",
		"mmaitre314__picklescan__bad_pytorch.pt":                   "file PT-001 not a torch file",
		"mmaitre314__picklescan__broken_model.pkl":                 "file PT-003 builtins.exec",
		"mmaitre314__picklescan__keyerror-exploit.pkl":             "file PT-003 os.system",
		"mmaitre314__picklescan__malicious0.pkl":                   "file PT-003 __builtin__.compile",
		"mmaitre314__picklescan__malicious1.zip":                   "file PT-003 builtins.eval",
		"mmaitre314__picklescan__malicious1_0x1.zip":               "file PT-001 data.pkl",
		"mmaitre314__picklescan__malicious1_central_directory.zip": "file PT-001 contradicts",
		"mmaitre314__picklescan__malicious1_crc.zip":               "file PT-003 builtins.eval",
		"mmaitre314__picklescan__not_a_pickle.bin":                 "file PT-001 not a torch file",
		"mmaitre314__picklescan__pytorch_magic_bypass.pt":          "file PT-003 __builtin__.eval",
		"mmaitre314__picklescan__type-confusion-exploit.pkl":       "file PT-003 os.system",
		"PCfVW__anamnesis__llama_1b_nf4.bin":                       "file PT-001 not a torch file",
		"variants/html_page.safetensors":                           "file PT-001 HTML",
		"variants/lfs_pointer.safetensors":                         "file PT-001 LFS",
		"variants/zero_bytes.safetensors":                          "file PT-001 empty",
		"variants/unicode_names.safetensors":                       "file PT-001 safetensors",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			f, err := readBounded(t, b)
			testHostile(t, f, err, want)
		})
	}
}
