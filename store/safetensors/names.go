package safetensors

import (
	"hash/maphash"
	"math/bits"
)

// names finds a tensor by name: an open-addressing table of indices, half full
// at most. The seed is random, so that no file can be made to collide.
type names struct {
	seed  maphash.Seed
	slots []uint64 // high 32 bits of the hash, then index+1; 0 is empty
	mask  uint64
}

// indexNames builds the table of tensors. If a name occurs twice, ok is false
// and dup the index of the second.
func indexNames(tensors []Tensor) (n names, dup int, ok bool) {
	size := uint64(1) << bits.Len(uint(2*len(tensors)))
	n = names{seed: maphash.MakeSeed(), slots: make([]uint64, size), mask: size - 1}
	for i := range tensors {
		h, tag := n.hash(tensors[i].Name)
		for n.slots[h] != 0 {
			if n.matches(tensors, h, tag, tensors[i].Name) {
				return n, i, false
			}
			h = (h + 1) & n.mask
		}
		n.slots[h] = tag | uint64(i+1)
	}
	return n, 0, true
}

// find returns the index of the tensor with this name.
func (n *names) find(tensors []Tensor, name string) (int, bool) {
	if len(tensors) == 0 {
		return 0, false
	}
	h, tag := n.hash(name)
	for n.slots[h] != 0 {
		if n.matches(tensors, h, tag, name) {
			return int(uint32(n.slots[h])) - 1, true
		}
		h = (h + 1) & n.mask
	}
	return 0, false
}

// hash returns the first slot to try for name, and its tag.
func (n *names) hash(name string) (slot, tag uint64) {
	h := maphash.String(n.seed, name)
	return h & n.mask, h &^ 0xffffffff
}

// matches reports whether slot h holds name. The tag spares most comparisons a
// look at the other name, which is likely not in the CPU's cache.
func (n *names) matches(tensors []Tensor, h, tag uint64, name string) bool {
	s := n.slots[h]
	return s&^0xffffffff == tag && tensors[uint32(s)-1].Name == name
}
