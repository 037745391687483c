package convert

import (
	"maps"

	"nibble/store"
)

// describe fills in the metadata, which says what the source says. Tensors of a
// torch file that share their elements are written under each of their names:
// safetensors has no views, and a reader looks for every name.
func (p *plan) describe(st *store.Store) {
	p.metadata = st.Metadata()
	if p.metadata == nil {
		p.metadata = map[string]string{}
	}
	if _, ok := p.metadata["format"]; !ok {
		p.metadata["format"] = "pt"
	}
	written := make(map[string]bool, len(p.items))
	for _, it := range p.items {
		written[it.t.Name()] = true
	}
	// An alias of a tensor that the globs leave out names nothing here.
	p.aliases = st.Aliases()
	maps.DeleteFunc(p.aliases, func(_, owner string) bool { return !written[owner] })
}
