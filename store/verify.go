package store

import (
	"context"
	"errors"

	"nibble/internal/rule"
	"nibble/mmap"
	"nibble/quant"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// Severity says what a finding means for whoever loads the checkpoint.
type Severity string

const (
	// Broken: something cannot be opened or decoded.
	Broken Severity = "error"
	// Suspect: everything decodes, but perhaps not to what was meant.
	Suspect Severity = "warning"
)

// Finding is one way in which a checkpoint breaks or bends a rule.
type Finding struct {
	Rule     string // stable id, such as BNB-102
	Severity Severity
	File     string // path, as it was opened
	Tensor   string // exact name, "" when a whole file is meant
	Offset   int64  // absolute byte offset in File, -1 when no single byte is meant
	Message  string // what is wrong, and what to do about it
}

// Verify reads all of a checkpoint's headers, quantization states and scales,
// and returns everything that breaks or bends a rule. It does not read the
// weights themselves, but for those that a torch archive holds deflated, whose
// checksums it compares. The error is for what cannot be read at all: a path
// that does not exist, an I/O error.
func Verify(ctx context.Context, path string, opts ...Option) ([]Finding, error) {
	found, err := verifyContainers(ctx, path, opts)
	if err != nil || len(found) > 0 {
		return found, err
	}
	st, err := Open(ctx, path, opts...)
	if err != nil {
		return asFindings(err)
	}
	defer st.Close()
	return st.verify(ctx)
}

// verifyContainers collects all that keeps the files from being opened, from
// every file rather than the first.
func verifyContainers(ctx context.Context, path string, opts []Option) ([]Finding, error) {
	st, err := newStore(path, opts)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if err := st.openFiles(ctx); err != nil {
		return asFindings(err)
	}
	st.catalog = newCatalog(st.loc.index)
	var all []Finding
	for _, sh := range st.shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if st.readShard(sh) == nil {
			continue
		}
		found, err := verifyContainer(st, sh)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// verifyContainer lists what is wrong with a file that cannot be opened: of a
// safetensors header everything, of others what is met first.
func verifyContainer(st *Store, sh *shard) ([]Finding, error) {
	path := sh.file.Path()
	if kind, err := sh.sniff(); err != nil {
		return asFindings(rule.Locate(err, path, ""))
	} else if !isTorch(kind) && !torchNamed(path) {
		list, err := safetensors.Verify(sh.file, sh.file.Size())
		if err != nil {
			return nil, rule.Locate(err, path, "")
		}
		var found []Finding
		for _, e := range list {
			found = append(found, finding(rule.Locate(e, path, ""), Broken))
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return asFindings(rule.Locate(st.readShard(sh), path, ""))
}

// asFindings turns an error that breaks a rule into a finding. Other errors
// stay errors.
func asFindings(err error) ([]Finding, error) { return asFindingsWith(err, toDo) }

func asFindingsWith(err error, toDo remedies) ([]Finding, error) {
	var e *Error
	if errors.As(err, &e) && e.Rule != "" {
		return []Finding{findingWith(e, Broken, toDo)}, nil
	}
	return nil, err
}

func finding(err error, s Severity) Finding { return findingWith(err, s, toDo) }

func findingWith(err error, s Severity, toDo remedies) Finding {
	var e *Error
	if !errors.As(err, &e) {
		return Finding{Severity: s, Offset: -1, Message: err.Error()}
	}
	f := Finding{Rule: string(e.Rule), Severity: s, File: e.Path, Tensor: e.Tensor, Offset: e.Offset, Message: e.Err.Error()}
	if do := toDo(e.Rule, s); do != "" {
		f.Message += "; " + do
	}
	return f
}

// remedies says what a user can do about a rule that is broken or bent.
type remedies func(id rule.ID, s Severity) string

func toDo(id rule.ID, s Severity) string {
	if s == Suspect {
		return advice[id]
	}
	return remedy[id]
}

// toDo knows besides that what one shard lacks may be in the others.
func (st *Store) toDo(id rule.ID, s Severity) string {
	if id == rule.Companion && st.loc.loneShard() {
		return "this is one shard of a checkpoint: verify its folder or index"
	}
	return toDo(id, s)
}

// advice says what a user can do about a suspicion.
var advice = map[rule.ID]string{
	rule.QuantMap:   "decoding uses the built-in table: check what wrote the file",
	rule.Companion:  "the checkpoint was merged or renamed in part: get the original again",
	rule.ScaleValue: "the weights were damaged before they were quantized, or the file after",
	rule.StaleCopy:  "write the index again from the shards",
}

// remedy says what a user can do about a broken rule.
var remedy = map[rule.ID]string{
	rule.QuantType:    "quantize again with a blocksize and type that bitsandbytes has",
	rule.Companion:    "the checkpoint was saved or merged without it: get the original again",
	rule.CompanionLen: "the file is damaged or was merged from two: get the original again",
	rule.Nested:       "the file is damaged or was merged from two: get the original again",
	rule.QuantJSON:    "the quant_state was damaged when the file was written: get the original again",
	rule.QuantClash:   "remove one of the two states, or get the original again",
	rule.WeightFormat: "load and save it again with a bitsandbytes that still reads the layout",
	rule.Length:       "download the file again",
	rule.HeaderLength: "download the file again",
	rule.ShardMissing: "download the missing shards, or write the index again",
	rule.NotInShard:   "write the index again from the shards",
	rule.UnsafeGlobal: "do not load this file with python either",
	rule.Truncated:    "the file was replaced or cut while it was read: verify again",
}

// verify collects the findings of an open checkpoint.
func (st *Store) verify(ctx context.Context) ([]Finding, error) {
	var found []Finding
	if st.loc.index != nil && len(st.loc.index.WeightMap) == 0 {
		e := rule.New(rule.IndexJSON, "the index names no tensors")
		e.Path = st.loc.path
		found = append(found, finding(e, Suspect))
	}
	for _, e := range st.stale {
		found = append(found, finding(e, Suspect))
	}
	for _, sh := range st.shards {
		for _, s := range sh.deflated {
			if err := s.prove(ctx); err != nil {
				more, err := asFindings(rule.Locate(err, sh.file.Path(), ""))
				if err != nil {
					return nil, err
				}
				found = append(found, more...)
			}
		}
	}
	for t := range st.Tensors() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		more, err := t.verify(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// verify collects the findings of one tensor.
func (t *Tensor) verify(ctx context.Context) ([]Finding, error) {
	if err := t.st.begin(); err != nil {
		return nil, err
	}
	defer t.st.end()
	r, err := t.resolve(ctx)
	if err != nil {
		return asFindingsWith(err, t.st.toDo)
	}
	var list []*rule.Error
	if len(t.companions) == 0 && t.object == nil {
		list = t.oddPlain()
	} else if list, err = t.oddQuantized(ctx, r); err != nil {
		return asFindings(t.locate(err))
	}
	var found []Finding
	for _, e := range list {
		found = append(found, findingWith(t.locate(e), Suspect, t.st.toDo))
	}
	return found, nil
}

// oddPlain looks for plain tensors that are pieces of a quantized one.
func (t *Tensor) oddPlain() []*rule.Error {
	base, role := companionOf(t.name)
	switch {
	case role == roleSCB || role == roleWeightFormat:
		if _, ok := t.st.byName[base]; ok {
			return nil // left over beside a weight that was restored
		}
		fallthrough
	case role != roleNone:
		return []*rule.Error{rule.New(rule.Companion, "orphan: there is no packed tensor %q for it", base).At(t.e.off)}
	case t.e.dtype == tensor.U8 && len(t.e.shape) == 2 && t.e.shape[1] == 1 && t.e.shape[0] > 1:
		return []*rule.Error{rule.New(rule.Companion, "shape %s of u8 looks like packed 4-bit codes, but no companion is there", t.e.shape).At(t.e.off)}
	}
	return nil
}

// oddQuantized looks at a quantized tensor that decodes: at its layout, its
// code table and its scales.
func (t *Tensor) oddQuantized(ctx context.Context, r *resolution) ([]*rule.Error, error) {
	var list []*rule.Error
	if r.state != nil && t.object == nil {
		more, err := t.oddFourBit(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	dec, ok := r.dec.(interface {
		CheckScales(parts [][]byte) *rule.Error
	})
	if !ok {
		return list, nil
	}
	err := t.wholeCompanions(ctx, r, func(parts [][]byte) {
		if e := dec.CheckScales(parts); e != nil {
			list = append(list, r.parts[1].place(e))
		}
	})
	return list, err
}

func (t *Tensor) oddFourBit(ctx context.Context, r *resolution) ([]*rule.Error, error) {
	set, err := t.companionSet()
	if err != nil {
		return nil, err
	}
	parts := fourBitParts(t.e, set)
	list := parts.Findings(r.state)
	for i, e := range list {
		list[i] = t.e.place(e)
	}
	content, err := set[roleQuantMap].read(ctx, 64)
	if err != nil {
		return nil, err
	}
	if e := quant.CheckQuantMap(r.state, parts.QuantMap, content); e != nil {
		list = append(list, set[roleQuantMap].place(e))
	}
	return list, nil
}

// wholeCompanions calls f under the guard with all bytes of every part of the
// tensor but the codes, which are nil.
func (t *Tensor) wholeCompanions(ctx context.Context, r *resolution, f func(parts [][]byte)) error {
	parts := make([][]byte, r.dec.Parts())
	files := make([]*mmap.File, len(parts))
	for i := range parts {
		files[i] = r.parts[i].shard.file
	}
	var failed error
	fault := mmap.Guard(files, func() {
		for i := 1; i < len(parts); i++ {
			var scratch []byte
			if parts[i], failed = r.parts[i].window(ctx, 0, r.parts[i].n, &scratch); failed != nil {
				return
			}
		}
		f(parts)
	})
	if fault != nil {
		return fault
	}
	for i := 1; i < len(parts) && failed == nil; i++ {
		failed = r.parts[i].check(0, r.parts[i].n)
	}
	return failed
}
