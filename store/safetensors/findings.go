package safetensors

import "nibble/internal/rule"

// maxFindings bounds what Verify collects: an entry of a hostile header is
// shorter than the finding about it.
const maxFindings = 1000

// findings decides what becomes of a problem that a parser meets: the first
// ends the parse, unless all are wanted.
type findings struct {
	all  bool
	list []*rule.Error // only if all
}

// fail notes a problem that need not end the parse. It returns the error to
// stop with, or nil to go on.
func (f *findings) fail(e *rule.Error) error {
	if !f.all || len(f.list) >= maxFindings {
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
