package pytorch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpus adds the files of golden and, where they are, of the wild that match,
// after cut has made seeds of them.
func corpus(f *testing.F, cut func(name string, b []byte)) {
	paths, _ := filepath.Glob(goldenDir + "/*/*.pt")
	for _, pattern := range []string{"/*/*.bin", "/hostile/pickle/*"} {
		more, _ := filepath.Glob(goldenDir + pattern)
		paths = append(paths, more...)
	}
	wild := os.Getenv("NIBBLE_WILD")
	if wild == "" {
		wild = "../../../shared/wild"
	}
	for _, pattern := range []string{"/*.pt", "/*.pth", "/*.bin", "/*.pkl", "/*.zip", "/*.tar", "/generated/*.pt"} {
		more, _ := filepath.Glob(wild + pattern)
		paths = append(paths, more...)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) <= 32<<10 { // mutating large ones is slow and finds nothing more
			cut(filepath.Base(p), b)
		}
	}
}

// FuzzRead feeds whole files.
func FuzzRead(f *testing.F) {
	corpus(f, func(_ string, b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := readBounded(t, b)
		if (file == nil) == (err == nil) {
			t.Fatalf("file %v, error %v", file, err)
		}
		if file == nil {
			return
		}
		for i := range file.Storages {
			if s := &file.Storages[i]; s.Deflated && s.Bytes < 1<<20 {
				s.Inflate(bytes.NewReader(b), make([]byte, s.Bytes))
			}
		}
	})
}

// FuzzUnpickle feeds the pickle of an archive of two storages.
func FuzzUnpickle(f *testing.F) {
	for _, p := range pythonPickles {
		f.Add([]byte(p))
	}
	corpus(f, func(_ string, b []byte) {
		if p, ok := pickleOf(b); ok {
			f.Add(p)
		}
	})
	f.Fuzz(func(t *testing.T, pickle []byte) {
		data := strings.Repeat("\x00\x01\x02\x03", 300)
		readBounded(t, zipFileOf(t, "a/data.pkl", string(pickle), "a/data/0", data, "a/data/1", data))
	})
}

// pickleOf returns the data.pkl of an archive.
func pickleOf(b []byte) ([]byte, bool) {
	r := bytes.NewReader(b)
	a, err := openArchive(r, int64(len(b)), Limits{}.withDefaults())
	if err != nil {
		return nil, false
	}
	root, err := a.root()
	if err != nil {
		return nil, false
	}
	e := a.entries[root+"data.pkl"]
	off, err := a.data(root+"data.pkl", e)
	if err != nil || e.method != stored {
		return nil, false
	}
	return b[off : off+e.size], true
}

// FuzzZip feeds archives to the locator alone: what it finds must lie in the
// file.
func FuzzZip(f *testing.F) {
	corpus(f, func(_ string, b []byte) {
		if bytes.Contains(b, []byte("PK\x05\x06")) {
			f.Add(b)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := openArchive(bytes.NewReader(b), int64(len(b)), Limits{}.withDefaults())
		if err != nil {
			return
		}
		for name, e := range a.entries {
			off, err := a.data(name, e)
			if err == nil && (off < 0 || e.compressed < 0 || e.size < 0 || off > int64(len(b))-e.compressed) {
				t.Fatalf("%q at %d: %+v", name, off, e)
			}
		}
	})
}

// FuzzLegacy feeds what follows the magic number of a legacy file.
func FuzzLegacy(f *testing.F) {
	const magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
	corpus(f, func(_ string, b []byte) {
		if rest, ok := bytes.CutPrefix(b, []byte(magic)); ok {
			f.Add(rest)
		}
	})
	f.Fuzz(func(t *testing.T, rest []byte) {
		readBounded(t, append([]byte(magic), rest...))
	})
}
