package store

import (
	"context"
	"strings"

	"nibble/mmap"
	"nibble/tensor"
)

// shard is one container file of the checkpoint.
type shard struct {
	file   *mmap.File
	rel    string // path relative to the checkpoint, as users see it
	stored int64  // bytes of tensors in it, shared ones counted once

	deflated []*torchStorage // of a torch file
	spill    spill           // of those
}

// entry is one stored tensor: what its container says of it, checked against
// the size of the file. Its bytes are row-major and little-endian to whoever
// reads them through window.
type entry struct {
	name     string
	dtype    tensor.DType
	shape    tensor.Shape
	numel    int64
	shard    *shard
	off      int64  // absolute, in the file of shard
	n        int64  // bytes
	expanded bool   // repeats bytes of the file: a view of torch
	view     viewer // how to read what is not simply n bytes at off; nil for those
	owner    int32  // the logical tensor this is a companion of, by index of its entry; -1 for none
	logical  int32  // index in catalog.tensors, for entries without an owner
	err      error  // why there are no bytes, such as IDX-003
}

// viewer reads a stored tensor whose bytes do not lie row-major and
// little-endian in the file.
type viewer interface {
	// window is entry.window.
	window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error)
	// source is the range of the file that bytes [off, off+n) come from.
	source(off, n int64) (fileOff, fileN int64)
}

// window returns bytes [off, off+n) of the stored tensor. They lie in the
// mapping, read-only and valid while the file is retained, or in *scratch,
// valid until its next use. Reading them may fault: callers run under
// mmap.Guard.
func (e *entry) window(ctx context.Context, off, n int64, scratch *[]byte) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	if e.view != nil {
		return e.view.window(ctx, off, n, scratch)
	}
	return e.shard.file.Window(e.off+off, n, scratch)
}

// check makes sure, once bytes [off, off+n) have been read, that the file still
// reaches them: behind the end of a file that shrank, a mapping reads zeros up
// to the end of the page.
func (e *entry) check(off, n int64) error {
	off, n = e.source(off, n)
	return e.shard.file.Check(off + n)
}

// source is the range of the file that bytes [off, off+n) of the stored tensor
// come from.
func (e *entry) source(off, n int64) (fileOff, fileN int64) {
	if e.view != nil {
		return e.view.source(off, n)
	}
	return e.off + off, n
}

// asCodes is the entry as packed codes: bytes, whatever dtype they are stored
// under. A host that stores words big end first stores bytes as they are.
func (e *entry) asCodes() *entry {
	v, ok := e.view.(*stridedView)
	if !ok || v.word == 1 {
		return e
	}
	codes, view := *e, *v
	view.word = 1
	codes.view = &view
	return &codes
}

// role is what a companion tensor is to its packed tensor.
type role uint8

const (
	roleNone role = iota
	roleAbsmax
	roleQuantMap
	roleNestedAbsmax
	roleNestedMap
	roleState // the quant_state JSON
	roleSCB
	roleWeightFormat
	roleObject // whatever a Python object says it is
	numRoles
)

// stateMark is what stands between a parameter's name and its quant type in
// the name of the quant_state tensor.
const stateMark = ".quant_state.bitsandbytes__"

// companionOf splits the name of a companion into the name of its packed
// tensor, which may be empty, and its role. Whether there is such a tensor is
// for the caller to see.
func companionOf(name string) (base string, r role) {
	// Where two paths of a torch file collide, the whole group of the later one
	// is numbered: w#2, w.absmax#2.
	number := len(name)
	if i := strings.LastIndexByte(name, '#'); i >= 0 && strings.Trim(name[i+1:], "0123456789") == "" {
		number = i
	}
	if base, r = numberless(name[:number]); r != roleNone {
		base += name[number:]
	}
	return base, r
}

// numberless is companionOf for a name without the number of a collision.
func numberless(name string) (base string, r role) {
	dot := strings.LastIndexByte(name, '.')
	switch name[dot+1:] {
	case "absmax":
		r = roleAbsmax
	case "quant_map":
		r = roleQuantMap
	case "nested_absmax":
		r = roleNestedAbsmax
	case "nested_quant_map":
		r = roleNestedMap
	case "SCB":
		return name[:dot+1] + "weight", roleSCB
	case "weight_format":
		return name[:dot+1] + "weight", roleWeightFormat
	default:
		if i := strings.LastIndex(name, stateMark); i >= 0 {
			return name[:i], roleState
		}
		return "", roleNone
	}
	if dot < 0 {
		return "", roleNone
	}
	return name[:dot], r
}
