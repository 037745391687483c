package pytorch

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"

	"nibble/internal/rule"
)

// readTar reads what torch saved before 0.1.10: a tar of four members. The
// object refers to tensors by number, "tensors" describes those as views of
// storages by number, and "storages" holds the bytes.
func readTar(r io.ReaderAt, size int64, lim Limits) (*File, error) {
	members, err := tarMembers(r, size)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"storages", "tensors", "pickle"} {
		if _, ok := members[name]; !ok {
			return nil, rule.New(rule.TorchContainer, "not a torch file: a tar without member %q", name)
		}
	}
	mt := &meter{max: lim.Memory}
	t := &tarFile{
		r: r, f: &File{Kind: Tar}, meter: mt,
		storages: make(map[int64]*storageRef), tensors: make(map[string]*tensorValue),
	}
	if err := t.readStorages(members["storages"]); err != nil {
		return nil, err
	}
	if err := t.readTensors(members["tensors"]); err != nil {
		return nil, err
	}
	m := t.machine(members["pickle"])
	m.persist = func(id value) (value, error) { return t.persist(m, id) }
	root, err := m.load()
	if err != nil {
		return nil, err
	}
	w := newWalker(t.f, mt, lim)
	if err := w.walk(root, nil); err != nil {
		return nil, err
	}
	return w.finish()
}

// extent is a part of the file.
type extent struct{ off, end int64 }

// maxMembers is far more members than torch ever wrote.
const maxMembers = 64

// tarMembers finds the regular members of a tar.
func tarMembers(r io.ReaderAt, size int64) (map[string]extent, error) {
	sec := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(sec)
	members := make(map[string]extent)
	for range maxMembers {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return members, nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, rule.New(rule.TorchContainer, "tar truncated: %w", err)
		}
		if err != nil {
			return nil, rule.New(rule.TorchContainer, "tar: %w", err)
		}
		off, err := sec.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, ioError(off, err)
		}
		// A sparse member is not stored as it is.
		if h.Typeflag != tar.TypeReg || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "" {
			continue
		}
		if _, dup := members[h.Name]; dup {
			return nil, rule.New(rule.TorchContainer, "duplicate tar member %q", h.Name).At(off)
		}
		members[h.Name] = extent{off, off + h.Size}
	}
	return nil, rule.New(rule.TorchLimit, "limit exceeded: tar of more than %d members", maxMembers)
}

type tarFile struct {
	r        io.ReaderAt
	f        *File
	meter    *meter
	storages map[int64]*storageRef
	tensors  map[string]*tensorValue // by decimal key: the object has strings
}

func (t *tarFile) machine(e extent) *machine {
	return &machine{src: newSource(t.r, e.off, e.end, t.meter), meter: t.meter}
}

// count loads a pickled number of things to follow.
func (m *machine) count() (int64, error) {
	v, err := m.load()
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok || n < 0 || n > m.src.left {
		return 0, m.fail("a count that is not one")
	}
	return n, nil
}

// fields loads a pickled tuple of n values, the first of which is an integer
// key.
func (m *machine) fields(n int) (int64, []value, error) {
	v, err := m.load()
	if err != nil {
		return 0, nil, err
	}
	items, ok := sequence(v)
	if !ok || len(items) != n {
		return 0, nil, m.fail("not a tuple of %d", n)
	}
	key, ok := items[0].(int64)
	if !ok {
		return 0, nil, m.fail("%s as a key", typeName(items[0]))
	}
	return key, items, nil
}

// readStorages reads the count of storages, each as a pickle (key, location,
// class), its number of elements and its bytes, and a pickled list of views
// (key, key of the storage, first element, elements).
func (t *tarFile) readStorages(e extent) error {
	m := t.machine(e)
	n, err := m.count()
	if err != nil {
		return err
	}
	for range n {
		if err := t.readStorage(m, e.end); err != nil {
			return err
		}
	}
	views, err := m.load()
	if err != nil {
		return err
	}
	items, ok := sequence(views)
	if !ok {
		return m.fail("storage views that are not a list")
	}
	for _, v := range items {
		if err := t.addView(m, v); err != nil {
			return err
		}
	}
	return nil
}

func (t *tarFile) readStorage(m *machine, end int64) error {
	key, items, err := m.fields(3)
	if err != nil {
		return err
	}
	id := storageID{key: strconv.FormatInt(key, 10), named: items[2]}
	id.class, _ = items[2].(*storageClass)
	if _, dup := t.storages[key]; dup {
		return m.fail("storage %d twice", key)
	}
	pos := m.src.pos
	b, err := m.src.next(8)
	if err != nil {
		return err
	}
	id.numel = int64(le.Uint64(b))
	size, bad := id.bytes()
	if bad != nil {
		return bad.At(pos)
	}
	s := Storage{Key: id.key, Bytes: size}
	if _, err := placeStorage(t.r, &s, id.numel, pos, end); err != nil {
		return err
	}
	if err := m.src.skip(size); err != nil {
		return err
	}
	t.f.Storages = append(t.f.Storages, s)
	t.meter.charge(2 * costStorage)
	t.storages[key] = id.ref(len(t.f.Storages)-1, nil)
	return nil
}

func (t *tarFile) addView(m *machine, v value) error {
	items, ok := sequence(v)
	if !ok || len(items) != 4 {
		return m.fail("storage view that is not a tuple of 4")
	}
	var n [4]int64
	for i, it := range items {
		if n[i], ok = it.(int64); !ok {
			return m.fail("%s in a storage view", typeName(it))
		}
	}
	root := t.storages[n[1]]
	if root == nil {
		return m.fail("view of storage %d, which there is not", n[1])
	}
	ref := *root
	if n[2] < 0 || n[3] < 0 || n[3] > root.numel-n[2] {
		m.meter.charge(costError)
		ref.index = -1
		ref.err = rule.New(rule.TorchGeometry, "view of %d elements from %d leaves storage %d of %d", n[3], n[2], n[1], root.numel).At(m.at)
	}
	ref.start += n[2]
	ref.numel = n[3]
	t.meter.charge(costStorage)
	t.storages[n[0]] = &ref
	return nil
}

// readTensors reads the count of tensors, each as a pickle (key, key of the
// storage, class) and, in binary, the rank (as 8 bytes), shape, strides and
// first element.
func (t *tarFile) readTensors(e extent) error {
	m := t.machine(e)
	n, err := m.count()
	if err != nil {
		return err
	}
	for range n {
		key, items, err := m.fields(3)
		if err != nil {
			return err
		}
		id, _ := items[1].(int64)
		ref := t.storages[id]
		if ref == nil {
			return m.fail("tensor %d over a storage that there is not", key)
		}
		tv, err := t.readTensor(m, ref)
		if err != nil {
			return err
		}
		t.tensors[strconv.FormatInt(key, 10)] = tv
	}
	return nil
}

func (t *tarFile) readTensor(m *machine, ref *storageRef) (*tensorValue, error) {
	b, err := m.src.next(8)
	if err != nil {
		return nil, err
	}
	rank := le.Uint32(b) // 4 bytes of it are padding
	if rank > maxRank {
		return nil, m.src.fail(m.at, rule.TorchLimit, "limit exceeded: a tensor of %d dimensions", rank)
	}
	m.meter.charge(costTensor + 16*int64(rank))
	nums := make([]int64, 2*rank+1)
	for i := range nums {
		if b, err = m.src.next(8); err != nil {
			return nil, err
		}
		nums[i] = int64(le.Uint64(b))
	}
	tv := &tensorValue{storage: -1, shape: nums[:rank:rank], strides: nums[rank : 2*rank : 2*rank]}
	elem, bad := tv.typed(ref, nil)
	if bad == nil {
		bad = tv.place(ref, nums[2*rank], elem)
	}
	if bad != nil {
		tv.err, tv.storage = bad, -1
	}
	return tv, nil
}

// persist resolves what the object refers to: a tensor or storage by its
// number in decimal, or a tuple that begins with a class.
func (t *tarFile) persist(m *machine, id value) (value, error) {
	if tup, ok := id.(*tuple); ok && len(tup.items) > 0 {
		return tup.items[0], nil
	}
	key := text(id)
	if tv, ok := t.tensors[key]; ok {
		return tv, nil
	}
	if n, err := strconv.ParseInt(key, 10, 64); err == nil && t.storages[n] != nil {
		return t.storages[n], nil
	}
	return nil, m.fail("no tensor %q", key)
}
