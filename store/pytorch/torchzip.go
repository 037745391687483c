package pytorch

import (
	"errors"
	"io"
	"strings"

	"nibble/internal/rule"
)

// readZip reads what torch has saved since version 1.6: data.pkl, and one
// entry for each storage, in a directory of any name.
func readZip(r io.ReaderAt, size int64, lim Limits) (*File, error) {
	a, err := openArchive(r, size, lim)
	if err != nil {
		return nil, err
	}
	root, err := a.root()
	if err != nil {
		return nil, err
	}
	z := &zipFile{archive: a, f: &File{Kind: Zip}, lim: lim, meter: &meter{max: lim.Memory}}
	if a.entries[root+"constants.pkl"] != nil {
		z.f.Kind = TorchScript
	}
	if z.big, err = a.byteOrder(root + "byteorder"); err != nil {
		return nil, err
	}
	w := newWalker(z.f, z.meter, lim)
	if err := z.readPickle(root, "data", w, nil); err != nil {
		return nil, err
	}
	if z.f.Kind == TorchScript {
		if err := z.readPickle(root, "constants", w, []value{"constants"}); err != nil {
			return nil, err
		}
	}
	return w.finish()
}

// root returns the directory of data.pkl, with its slash, "" for none. When
// other tools have added a second data.pkl, the one beside torch's version
// file counts, then the one in the directory of the first entry.
func (a *archive) root() (string, error) {
	var all, versioned []string
	for _, name := range a.order {
		dir, ok := strings.CutSuffix(name, "data.pkl")
		if !ok || dir != "" && !strings.HasSuffix(dir, "/") {
			continue
		}
		all = append(all, dir)
		if a.entries[dir+"version"] != nil {
			versioned = append(versioned, dir)
		}
	}
	switch {
	case len(all) == 0:
		return "", badZip("not a torch file: a zip without data.pkl")
	case len(all) == 1:
		return all[0], nil
	case len(versioned) == 1:
		return versioned[0], nil
	}
	first, _, _ := strings.Cut(a.order[0], "/")
	for _, dir := range all {
		if dir == first+"/" {
			return dir, nil
		}
	}
	return "", badZip("zip with %d entries data.pkl", len(all))
}

// byteOrder reports whether the storages are big-endian. Files of torch before
// 2.1 do not say and are not.
func (a *archive) byteOrder(name string) (big bool, err error) {
	e := a.entries[name]
	if e == nil {
		return false, nil
	}
	const longest = len("little")
	if e.err == nil && e.size > int64(longest) {
		return false, badZip("byteorder of %d bytes", e.size).At(e.local)
	}
	src, done, err := a.open(name, e, new(meter))
	if err != nil {
		return false, err
	}
	b := make([]byte, e.size)
	if err := src.copyTo(b); err != nil {
		return false, err
	}
	if err := done(); err != nil {
		return false, err
	}
	switch string(b) {
	case "little":
		return false, nil
	case "big":
		return true, nil
	}
	return false, badZip("byteorder %q", b).At(e.local)
}

// compressedWeight is how many bytes of a pickle one compressed byte stands for.
// The pickle of a state dict deflates to a fifth.
const compressedWeight = 4

// open returns the contents of an entry as a source, and what to call after
// the last byte of interest to have a deflated entry checked. The CRC of a
// stored entry is not checked: that would read all of it.
func (a *archive) open(name string, e *zipEntry, m *meter) (*source, func() error, error) {
	off, err := a.data(name, e)
	if err != nil {
		return nil, nil, err
	}
	if e.method == stored {
		return newSource(a.r, off, off+e.size, m), func() error { return nil }, nil
	}
	raw := &feeder{io.NewSectionReader(a.r, off, e.compressed), m, compressedWeight}
	z := newInflater(raw, off, e.compressed, e.crc)
	src := newStream(z, e.size)
	done := func() error {
		defer z.close()
		if err := src.skip(src.left); err != nil {
			return err
		}
		return z.finish()
	}
	return src, done, nil
}

// zipFile is one archive of torch while it is read.
type zipFile struct {
	*archive
	f     *File
	lim   Limits
	meter *meter
	big   bool
}

// readPickle reads the pickle called name, whose storages are in the directory
// of the same name, and walks it from prefix on.
func (z *zipFile) readPickle(root, name string, w *walker, prefix []value) error {
	path := root + name + ".pkl"
	e := z.entries[path]
	if e.err == nil && e.method == deflated && e.size > z.lim.PickleBytes {
		return rule.New(rule.TorchLimit, "limit exceeded: %s inflates to %d bytes", path, e.size).At(e.local)
	}
	src, done, err := z.open(path, e, z.meter)
	if err != nil {
		return err
	}
	m := &machine{src: src, meter: z.meter}
	known := make(map[string]zipStorage)
	m.persist = func(id value) (value, error) {
		s, class, err := m.parseID(id)
		if s == nil {
			return class, err
		}
		return z.storage(s, root+name+"/", known)
	}
	v, err := m.load()
	if err != nil {
		return err
	}
	if err := done(); err != nil {
		return err
	}
	return w.walk(v, prefix)
}

// zipStorage is what became of a storage key: a storage, or why it is none.
type zipStorage struct {
	index int
	err   *rule.Error
}

// storage finds the entry of a storage. What is wrong with it is kept in the
// reference, for the tensors over it to report.
func (z *zipFile) storage(s *storageID, dir string, known map[string]zipStorage) (*storageRef, error) {
	need, bad := s.bytes()
	if bad == nil {
		bad = s.viewError()
	}
	if bad != nil {
		z.meter.charge(costError)
		return s.ref(-1, bad), nil
	}
	k, ok := known[s.key]
	if !ok {
		i, err := z.locate(s.key, dir+s.key)
		if err != nil && !errors.As(err, &k.err) {
			return nil, err
		}
		// The file itself is at fault where there is no rule: I/O, truncation.
		if k.err != nil && (k.err.Rule == "" || k.err.Rule == rule.Truncated) {
			return nil, k.err
		}
		k.index = i
		z.meter.charge(costStorage + costError + int64(len(s.key)))
		known[s.key] = k
	}
	if k.err != nil {
		return s.ref(-1, k.err), nil
	}
	if have := z.f.Storages[k.index].Bytes; need > have {
		z.meter.charge(costError)
		return s.ref(-1, rule.New(rule.TorchGeometry, "storage %q truncated: %d bytes of %d", clip(s.key), have, need)), nil
	}
	return s.ref(k.index, nil), nil
}

// locate adds the entry of a storage to the file's storages.
func (z *zipFile) locate(key, name string) (int, error) {
	e := z.entries[name]
	if e == nil {
		return -1, rule.New(rule.TorchGeometry, "no zip entry %q", clip(name))
	}
	off, err := z.data(name, e)
	if err != nil {
		return -1, err
	}
	s := Storage{Key: key, Bytes: e.size, Offset: off, BigEndian: z.big}
	if e.method == deflated {
		s.Deflated, s.Compressed, s.CRC32 = true, e.compressed, e.crc
	}
	z.f.Storages = append(z.f.Storages, s)
	return len(z.f.Storages) - 1, nil
}
