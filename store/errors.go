package store

import (
	"fmt"
	"strings"

	"nibble/internal/rule"
)

// Error says where a checkpoint breaks a rule: path, tensor, rule id, byte
// offset (-1 when no single byte is meant) and cause. Every error that comes
// from the bytes of a file is or wraps an *Error.
type Error = rule.Error

// The classes of error, for errors.Is. An *Error matches the class of its rule.
var (
	ErrNotFound    = rule.ErrNotFound    // no such tensor, file or shard
	ErrCorrupt     = rule.ErrCorrupt     // the bytes break a rule of their format
	ErrUnsupported = rule.ErrUnsupported // well-formed, but not something nibble decodes
	ErrUnsafe      = rule.ErrUnsafe      // a pickle that asks for harm
	ErrBudget      = rule.ErrBudget      // more bytes than the budget allows
	ErrTruncated   = rule.ErrTruncated   // the file became shorter than its header says
	ErrClosed      = rule.ErrClosed      // the store is closed
	ErrLeased      = rule.ErrLeased      // Close found leases that are still open
	ErrLimit       = rule.ErrLimit       // a limit on depth, count or size was reached
)

// NotFoundError reports a name that no tensor has. It matches ErrNotFound.
type NotFoundError struct {
	Path  string
	Name  string
	store *Store
}

// Nearest are up to three existing names that may have been meant, nearest
// first; of a companion, its packed tensor. Finding them looks at all names.
func (e *NotFoundError) Nearest() []string {
	if e.store == nil {
		return nil
	}
	return e.store.suggest(e.Name)
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no tensor named %q", e.Path, e.Name)
	for i, n := range e.Nearest() {
		if i == 0 {
			b.WriteString("; nearest: ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	return b.String()
}

func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }
