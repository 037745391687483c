package pytorch

import (
	"math"
	"slices"

	"nibble/internal/rule"
	"nibble/tensor"
)

// place checks that the view lies inside its storage.
func (t *tensorValue) place(ref *storageRef, start, elem int64) *rule.Error {
	bytes, ok := tensor.Mul(ref.numel, ref.class.size)
	if !ok {
		return rule.New(rule.TorchGeometry, "storage of %d elements", ref.numel)
	}
	base, ok := tensor.Mul(ref.start, ref.class.size)
	if !ok || base%elem != 0 {
		return rule.New(rule.TorchGeometry, "storage view at element %d", ref.start)
	}
	if err := t.check(start, bytes/elem); err != nil {
		return err
	}
	if start > math.MaxInt64-base/elem {
		return rule.New(rule.TorchGeometry, "storage offset %d", start)
	}
	t.start = start + base/elem
	t.storage = ref.index
	return nil
}

// check reports whether shape and strides, from element start on, stay inside
// a storage of n elements.
func (t *tensorValue) check(start, n int64) *rule.Error {
	if len(t.shape) != len(t.strides) {
		return rule.New(rule.TorchGeometry, "shape of %d dimensions with %d strides", len(t.shape), len(t.strides))
	}
	numel, ok := t.shape.Numel()
	if !ok {
		return rule.New(rule.TorchGeometry, "shape %v is negative or overflows", t.shape)
	}
	if start < 0 {
		return rule.New(rule.TorchGeometry, "negative storage offset %d", start)
	}
	last := start // the highest element that the view reaches
	for i, d := range t.shape {
		s := t.strides[i]
		if s < 0 {
			return rule.New(rule.TorchGeometry, "negative stride %d", s)
		}
		if numel == 0 {
			continue
		}
		reach, ok := tensor.Mul(d-1, s)
		if !ok || reach > math.MaxInt64-last {
			return rule.New(rule.TorchGeometry, "strides %v overflow", t.strides)
		}
		last += reach
	}
	switch {
	case numel > 0 && last >= n:
		return rule.New(rule.TorchGeometry, "view ends at element %d of a storage of %d", last, n)
	case start > n:
		return rule.New(rule.TorchGeometry, "empty view at element %d of a storage of %d", start, n)
	}
	return nil
}

// contiguous reports whether the elements lie in row-major order without gaps.
// Strides of dimensions of one element say nothing.
func (t *tensorValue) contiguous() bool {
	want := int64(1)
	for i := len(t.shape) - 1; i >= 0; i-- {
		switch d := t.shape[i]; {
		case d == 0:
			return true
		case d == 1:
		case t.strides[i] != want:
			return slices.Contains(t.shape[:i], 0)
		default:
			want *= d // cannot overflow: the product was checked
		}
	}
	return true
}
