package pytorch

import (
	"bytes"
	"errors"
	"io"

	"nibble/internal/rule"
)

// Read describes the torch file that r holds in its first size bytes. It reads
// the pickles and the directory of the container, never the data of a tensor.
// r may be read from again, concurrently, once Read has returned.
func Read(r io.ReaderAt, size int64, lim Limits) (*File, error) {
	lim = lim.withDefaults()
	var head [512]byte
	h := head[:min(size, int64(len(head)))]
	if err := readFull(r, h, 0); err != nil {
		return nil, err
	}
	switch {
	case size == 0:
		return nil, rule.New(rule.TorchContainer, "empty file")
	case bytes.HasPrefix(h, []byte("PK\x03\x04")):
		return readZip(r, size, lim)
	case len(h) > tarMagicAt && bytes.HasPrefix(h[tarMagicAt:], []byte("ustar")):
		return readTar(r, size, lim)
	}
	return readOther(r, size, lim, h)
}

const tarMagicAt = 257

// readOther reads a file that begins with neither a zip nor a tar: a legacy
// one, or a zip behind a prefix. It explains the rest.
func readOther(r io.ReaderAt, size int64, lim Limits, head []byte) (*File, error) {
	if what := notTorch(head); what != "" {
		return nil, rule.New(rule.TorchContainer, "not a torch file: %s", what)
	}
	first, err := firstPickle(r, size, lim)
	if isLegacyMagic(first) {
		return readLegacy(r, size, lim)
	}
	var e *rule.Error
	if errors.As(err, &e) && (e.Rule == rule.UnsafeGlobal || e.Rule == rule.Truncated || e.Rule == "") {
		return nil, err
	}
	switch _, zerr := findDirectory(r, size); {
	case zerr == nil:
		return readZip(r, size, lim)
	case errors.As(zerr, &e) && e.Rule != rule.TorchContainer:
		return nil, zerr
	case err != nil:
		return nil, rule.New(rule.TorchContainer, "not a torch file: neither zip, tar nor pickle: %w", err)
	}
	return nil, rule.New(rule.TorchContainer, "not a torch file: a pickle without torch's magic number")
}

// notTorch recognises what is often found under the name of a checkpoint.
func notTorch(head []byte) string {
	lower := bytes.ToLower(bytes.TrimSpace(head))
	switch {
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return "a Git LFS pointer"
	case bytes.HasPrefix(lower, []byte("<!doctype html")), bytes.HasPrefix(lower, []byte("<html")):
		return "an HTML page"
	case len(head) > 9 && head[8] == '{' && (head[9] == '"' || head[9] == '}') && bytes.Equal(head[4:8], make([]byte, 4)):
		return "a safetensors file"
	}
	return ""
}

// firstPickle loads the pickle at the start of the file, whose value tells a
// legacy file from a bare pickle. Persistent ids are of no consequence here.
func firstPickle(r io.ReaderAt, size int64, lim Limits) (value, error) {
	mt := &meter{max: lim.Memory}
	m := &machine{src: newSource(r, 0, size, mt), meter: mt}
	m.persist = func(value) (value, error) { return inert{}, nil }
	return m.load()
}
