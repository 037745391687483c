package pytorch

import (
	"strconv"

	"nibble/internal/rule"
	"nibble/tensor"
)

// storageID is a persistent id of the form ("storage", class, key, location,
// numel) or, in legacy files, the same with a view of the storage at the end.
type storageID struct {
	class *storageClass // nil if it is none of torch's
	named value         // what stands in its place then
	key   string
	numel int64
	bad   *rule.Error // why numel is not known
	view  *viewID
}

// viewID is a part of a storage: (key of the part, first element, elements).
type viewID struct {
	start, numel int64
	bad          *rule.Error // why they are not known
}

// parseID decodes a persistent id. It returns nil and the class for the ids of
// legacy files that stand for the class of a module and its source.
func (m *machine) parseID(id value) (*storageID, value, error) {
	t, ok := id.(*tuple)
	if !ok || len(t.items) < 2 {
		return nil, nil, m.fail("persistent id of %s", typeName(id))
	}
	switch text(t.items[0]) {
	case "storage":
	case "module":
		return nil, t.items[1], nil
	default:
		return nil, nil, m.fail("persistent id of an unknown type")
	}
	if len(t.items) < 5 {
		return nil, nil, m.fail("storage of %d fields", len(t.items))
	}
	s := &storageID{named: t.items[1]}
	s.class, _ = t.items[1].(*storageClass)
	switch k := t.items[2].(type) {
	case string:
		s.key = k
	case int64:
		s.key = strconv.FormatInt(k, 10)
	default:
		return nil, nil, m.fail("%s as a storage key", typeName(k))
	}
	s.numel, s.bad = m.integer(t.items[4], "storage size")
	if len(t.items) > 5 && t.items[5] != nil {
		s.view = m.parseView(t.items[5])
	}
	return s, nil, nil
}

func (m *machine) parseView(v value) *viewID {
	items, ok := sequence(v)
	if !ok || len(items) != 3 {
		return &viewID{bad: m.malformed("view of a storage that is not a key and two integers")}
	}
	var view viewID
	if view.start, view.bad = m.integer(items[1], "storage view"); view.bad == nil {
		view.numel, view.bad = m.integer(items[2], "storage view")
	}
	return &view
}

func text(v value) string {
	switch v := v.(type) {
	case string:
		return v
	case bytesValue:
		return string(v)
	}
	return ""
}

// bytes is the size of the storage, or why there is none.
func (s *storageID) bytes() (int64, *rule.Error) {
	if s.class == nil {
		return 0, rule.New(rule.TorchClass, "storage class %s is not read", describe(s.named))
	}
	if s.bad != nil {
		return 0, s.bad
	}
	n, ok := tensor.Mul(s.numel, s.class.size)
	if !ok {
		return 0, rule.New(rule.TorchGeometry, "storage %q of %d elements", clip(s.key), s.numel)
	}
	return n, nil
}

// viewError is why the view does not lie in the storage.
func (s *storageID) viewError() *rule.Error {
	switch v := s.view; {
	case v == nil:
		return nil
	case v.bad != nil:
		return v.bad
	case v.start < 0 || v.numel < 0 || v.numel > s.numel-v.start:
		return rule.New(rule.TorchGeometry, "view of %d elements from %d leaves storage %q of %d", v.numel, v.start, clip(s.key), s.numel)
	}
	return nil
}

// ref makes the reference that tensors hold, to storage number index.
func (s *storageID) ref(index int, err *rule.Error) *storageRef {
	r := &storageRef{index: index, class: s.class, numel: s.numel, err: err}
	if r.class == nil {
		r.class = &storageClass{name: describe(s.named), size: 1}
	}
	if err != nil {
		r.index = -1
		return r
	}
	if s.view != nil {
		r.start, r.numel = s.view.start, s.view.numel
	}
	return r
}
