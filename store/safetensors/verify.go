package safetensors

import (
	"errors"
	"fmt"
	"io"

	"nibble/internal/rule"
)

// maxFindings bounds what Verify collects: an entry of a hostile header is
// shorter than the finding about it.
const maxFindings = 1000

// Verify reads the header as [Read] does and returns all that is wrong with
// it, in the order of the header and then of the tensors' bytes; nothing if
// Read accepts it. It goes on after a problem wherever the text still tells
// where the next value begins, up to a thousand findings.
//
// The error is that of r, if it cannot be read.
func Verify(r io.ReaderAt, size int64) ([]*rule.Error, error) {
	json, err := readJSON(r, size)
	if err != nil {
		var e *rule.Error
		if errors.As(err, &e) {
			return []*rule.Error{e}, nil
		}
		return nil, err
	}
	dataStart := prefixLen + int64(len(json))
	if _, ok := scan(json, dataStart, size); ok {
		return nil, nil
	}
	p := newParser(json, dataStart, size)
	p.all = true
	_ = p.run() // what ended it is the last of the findings
	return p.list, nil
}

// findings decides what becomes of a problem that a parser meets: the first
// ends the parse, unless all are wanted.
type findings struct {
	all  bool
	list []*rule.Error // only if all
}

// fail notes a problem that need not end the parse. It returns the error to
// stop with, or nil to go on.
func (f *findings) fail(e *rule.Error) error {
	switch {
	case !f.all:
		return e
	case len(f.list) == maxFindings-1:
		e.Err = fmt.Errorf("%w; stopped after %d findings", e.Err, maxFindings)
		return f.fatal(e)
	}
	f.list = append(f.list, e)
	return nil
}

// fatal notes a problem after which nothing can be read.
func (f *findings) fatal(e *rule.Error) error {
	if f.all {
		f.list = append(f.list, e)
	}
	return e
}
