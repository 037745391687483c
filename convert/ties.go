package convert

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"nibble/store"
	"nibble/tensor"
)

// place is where the bytes of a tensor begin, and what they are. Tensors of one
// place may still differ: in their strides, or in their scales.
type place struct {
	file   string
	offset int64
	shape  string
	stored tensor.DType
	scheme store.Scheme
}

// tie finds tensors that are views of the same elements. safetensors has no
// such views: only the first of them is written, and the metadata maps the
// names of the others to its name, which is how safetensors.torch.save_model
// says it and how nibble reads it back.
func (p *plan) tie(ctx context.Context, st *store.Store) error {
	p.metadata, p.aliases = st.Metadata(), st.Aliases()
	if p.metadata == nil {
		p.metadata = map[string]string{}
	}
	if _, ok := p.metadata["format"]; !ok {
		p.metadata["format"] = "pt"
	}
	tied := map[string]string{}
	seen := map[place][]*item{}
	kept := p.items[:0]
	for _, it := range p.items {
		owner, err := it.owner(ctx, seen)
		if err != nil {
			return err
		}
		if _, taken := p.metadata[it.t.Name()]; owner != nil && !taken {
			tied[it.t.Name()] = owner.t.Name()
			continue
		}
		kept = append(kept, it)
	}
	p.items = kept
	p.addAliases(tied)
	return nil
}

// addAliases adds tied names to the metadata. A name of the source that stands
// for one of them stands for its owner now.
func (p *plan) addAliases(tied map[string]string) {
	all := map[string]string{}
	for name, owner := range p.aliases {
		if first, ok := tied[owner]; ok {
			owner = first
		}
		all[name] = owner
	}
	maps.Copy(all, tied)
	maps.Copy(p.metadata, all)
	written := map[string]bool{}
	for _, it := range p.items {
		written[it.t.Name()] = true
	}
	// An alias of a tensor that the globs leave out names nothing here.
	maps.DeleteFunc(all, func(_, owner string) bool { return !written[owner] })
	p.aliases = all
}

// owner finds the first tensor in seen that has the elements of it, nil if none
// has, and adds it to seen.
func (it *item) owner(ctx context.Context, seen map[place][]*item) (*item, error) {
	if it.bytes == 0 {
		return nil, nil
	}
	at := place{it.info.File, it.info.Offset, it.info.Shape.String(), it.info.StoredDType, it.info.Scheme}
	for _, other := range seen[at] {
		same, err := equal(ctx, it.t, other.t)
		if err != nil {
			return nil, err
		}
		if same {
			return other, nil
		}
	}
	seen[at] = append(seen[at], it)
	return nil, nil
}

// comparePiece is how many bytes of two tensors are compared at a time.
const comparePiece = 64 << 10

// equal compares the elements of two tensors of the same shape.
func equal(ctx context.Context, a, b *store.Tensor) (bool, error) {
	other := make([]byte, comparePiece)
	for tile, err := range a.Tiles(ctx, tensor.Stored, comparePiece) {
		if err != nil {
			return false, err
		}
		if len(tile.Data) > len(other) {
			return false, fmt.Errorf("%q: tile of %d bytes, want at most %d", a.Name(), len(tile.Data), len(other))
		}
		data := other[:len(tile.Data)]
		if dt, err := b.Decodes(ctx, tensor.Stored); err != nil || dt != tile.DType {
			return false, err
		}
		if err := b.Read(ctx, data, tile.DType, tile.Lo, tile.Hi); err != nil {
			return false, err
		}
		if !bytes.Equal(tile.Data, data) {
			return false, nil
		}
	}
	return true, nil
}
