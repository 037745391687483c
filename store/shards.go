package store

import (
	"errors"
	"path/filepath"

	"nibble/internal/rule"
	"nibble/store/pytorch"
	"nibble/store/safetensors"
)

// sniff tells what the file is by its first bytes.
func (sh *shard) sniff() (safetensors.Kind, error) {
	size := sh.file.Size()
	prefix := make([]byte, min(safetensors.SniffLen, size))
	if _, err := sh.file.ReadAt(prefix, 0); err != nil {
		return safetensors.Unknown, err
	}
	return safetensors.Sniff(prefix, size), nil
}

func isTorch(k safetensors.Kind) bool {
	return k == safetensors.Zip || k == safetensors.Pickle || k == safetensors.Tar
}

func torchNamed(path string) bool {
	switch filepath.Ext(path) {
	case ".pt", ".pth", ".bin", ".pkl", ".zip", ".tar":
		return true
	}
	return false
}

// readShard reads the header of one file, whatever container it is, into the
// catalog.
func (st *Store) readShard(sh *shard) error {
	kind, err := sh.sniff()
	if err != nil {
		return err
	}
	if isTorch(kind) {
		return st.readTorch(sh)
	}
	if kind == safetensors.Unknown {
		// A zip behind foreign bytes shows only at its end. Of what neither
		// reader knows, the name says which error makes sense to its user.
		var e *rule.Error
		if err := st.readTorch(sh); !errors.As(err, &e) || e.Rule != rule.TorchContainer || torchNamed(sh.file.Path()) {
			return err
		}
	}
	return st.readSafetensors(sh)
}

func (st *Store) readSafetensors(sh *shard) error {
	h, err := safetensors.Read(sh.file, sh.file.Size())
	if err != nil {
		return err
	}
	for k, v := range h.Metadata {
		if _, taken := st.metadata[k]; !taken {
			st.metadata[k] = v
		}
	}
	st.expect(len(h.Tensors))
	for i := range h.Tensors {
		t := &h.Tensors[i]
		n, ok := t.Shape.Numel()
		if !ok {
			return rule.New(rule.HeaderShape, "shape %s has too many elements", t.Shape).For(t.Name)
		}
		st.add(entry{
			name: t.Name, dtype: t.DType, shape: t.Shape, numel: n,
			shard: sh, off: t.Begin, n: t.End - t.Begin,
		})
		sh.stored += t.End - t.Begin
	}
	return nil
}

func (st *Store) readTorch(sh *shard) error {
	f, err := pytorch.Read(sh.file, sh.file.Size(), pytorch.Limits(st.cfg.Limits))
	if err != nil {
		return err
	}
	st.addTorch(sh, f)
	return nil
}
