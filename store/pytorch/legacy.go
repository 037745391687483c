package pytorch

import (
	"io"
	"math/big"

	"nibble/internal/rule"
)

// legacyMagic is the first object of a legacy file.
var legacyMagic, _ = new(big.Int).SetString("1950a86a20f9469cfc6c", 16)

// legacyProtocol is the second: there was never another.
const legacyProtocol = 1001

// readLegacy reads what torch saved from 0.1.10 to 1.5: four pickles (magic,
// protocol, system, object), a fifth with the keys of the storages, and then
// those in that order, each behind its number of elements. Numbers are
// little-endian whatever the system was; torch, too, ignores what the file says
// about it. Bytes behind the last storage are ignored.
func readLegacy(r io.ReaderAt, size int64, lim Limits) (*File, error) {
	mt := &meter{max: lim.Memory}
	l := &legacy{
		r: r, size: size, f: &File{Kind: Legacy},
		m:     &machine{src: newSource(r, 0, size, mt), meter: mt},
		known: make(map[string]*legacyStorage),
	}
	if err := l.header(); err != nil {
		return nil, err
	}
	l.m.persist = l.persist
	root, err := l.m.load()
	if err != nil {
		return nil, err
	}
	w := newWalker(l.f, mt, lim)
	if err := w.walk(root, nil); err != nil {
		return nil, err
	}
	l.m.persist = nil
	keys, err := l.m.load()
	if err != nil {
		return nil, err
	}
	if err := l.storages(keys); err != nil {
		return nil, err
	}
	return w.finish()
}

type legacy struct {
	r     io.ReaderAt
	size  int64
	f     *File
	m     *machine
	known map[string]*legacyStorage
}

type legacyStorage struct {
	index int
	class *storageClass
	numel int64
	found bool
}

func isLegacyMagic(v value) bool {
	b, ok := v.(*big.Int)
	return ok && b.Cmp(legacyMagic) == 0
}

// header reads magic, protocol and system.
func (l *legacy) header() error {
	magic, err := l.m.load()
	if err != nil {
		return err
	}
	if !isLegacyMagic(magic) {
		return rule.New(rule.TorchContainer, "not a torch file: a pickle without torch's magic number")
	}
	proto, err := l.m.load()
	if err != nil {
		return err
	}
	if proto != int64(legacyProtocol) {
		return rule.New(rule.TorchContainer, "legacy file of an unknown protocol")
	}
	_, err = l.m.load()
	return err
}

// persist registers the storages that the object refers to. Where they are is
// only known once all their sizes are.
func (l *legacy) persist(id value) (value, error) {
	s, class, err := l.m.parseID(id)
	if s == nil {
		return class, err
	}
	bytes, bad := s.bytes()
	if bad != nil {
		// Without its size, everything behind it is lost too.
		return nil, bad.At(l.m.at)
	}
	k := l.known[s.key]
	if k == nil {
		k = &legacyStorage{index: len(l.f.Storages), class: s.class, numel: s.numel}
		l.known[s.key] = k
		l.m.meter.charge(2*costStorage + int64(len(s.key)))
		l.f.Storages = append(l.f.Storages, Storage{Key: s.key, Bytes: bytes})
	}
	if k.class != s.class || k.numel != s.numel {
		return nil, rule.New(rule.TorchGeometry, "storage %q of two sizes or types", clip(s.key)).At(l.m.at)
	}
	bad = s.viewError()
	if bad != nil {
		l.m.meter.charge(costError)
	}
	return s.ref(k.index, bad), nil
}

// storages places the storages, which begin where the last pickle ends.
func (l *legacy) storages(keys value) error {
	list, ok := keys.(*list)
	if !ok {
		return l.m.fail("storage keys that are not a list")
	}
	pos := l.m.src.pos
	for _, key := range list.items {
		k := l.known[text(key)]
		if k == nil || k.found {
			return rule.New(rule.TorchGeometry, "storage key %q that no tensor has, or twice", clip(text(key))).At(l.m.at)
		}
		k.found = true
		end, err := placeStorage(l.r, &l.f.Storages[k.index], k.numel, pos, l.size)
		if err != nil {
			return err
		}
		pos = end
	}
	for key, k := range l.known {
		if !k.found {
			return rule.New(rule.TorchGeometry, "storage %q missing from the list of keys", clip(key)).At(l.m.at)
		}
	}
	return nil
}

// placeStorage sets the offset of a storage that stands at pos behind its
// number of elements, and returns where it ends, at most limit.
func placeStorage(r io.ReaderAt, s *Storage, numel, pos, limit int64) (int64, error) {
	if limit-pos < 8 {
		return 0, rule.New(rule.TorchContainer, "truncated before storage %q", clip(s.Key)).At(pos)
	}
	var count [8]byte
	if err := readFull(r, count[:], pos); err != nil {
		return 0, err
	}
	if n := le.Uint64(count[:]); n != uint64(numel) {
		return 0, rule.New(rule.TorchGeometry, "storage %q of %d elements, not %d", clip(s.Key), n, numel).At(pos)
	}
	s.Offset = pos + 8
	if s.Bytes > limit-s.Offset {
		return 0, rule.New(rule.TorchContainer, "storage %q truncated: %d bytes of %d", clip(s.Key), limit-s.Offset, s.Bytes).At(s.Offset)
	}
	return s.Offset + s.Bytes, nil
}
