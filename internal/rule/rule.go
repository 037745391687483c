// Package rule names the rules that a checkpoint must keep and the error that
// reports a broken one. It sits below every other room so that containers,
// decoders and the store speak of one kind of error; package store re-exports
// it as store.Error.
package rule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ID is a stable rule id, as printed in errors and findings.
type ID string

// The rules. The prefix says where: BNB bitsandbytes, ST safetensors, IDX the
// shard index, PT torch files, IO the file system.
const (
	QuantType    ID = "BNB-001" // quant_type or blocksize that bitsandbytes does not have
	QuantMap     ID = "BNB-003" // quant_map unlike the built-in table (a finding)
	Nested       ID = "BNB-004" // nested statistics incomplete or inconsistent
	Companion    ID = "BNB-101" // a companion tensor is missing
	CompanionLen ID = "BNB-102" // a companion or the packed tensor has the wrong length or dtype
	QuantJSON    ID = "BNB-103" // the quant_state JSON is malformed
	QuantShape   ID = "BNB-104" // shape or dtype in the quant_state
	QuantClash   ID = "BNB-105" // two quant states, or name and JSON disagree
	ScaleValue   ID = "BNB-106" // a scale that is not finite or negative (a finding)
	SCB          ID = "BNB-201" // LLM.int8() row statistics
	WeightFormat ID = "BNB-202" // LLM.int8() layout other than row

	HeaderLength   ID = "ST-001"
	HeaderJSON     ID = "ST-002"
	DuplicateName  ID = "ST-003" // duplicate tensor name or key
	HeaderDType    ID = "ST-004"
	HeaderShape    ID = "ST-005"
	Offsets        ID = "ST-006" // overlap, hole, order
	Length         ID = "ST-007" // truncated, or trailing bytes
	NotSafetensors ID = "ST-008" // LFS pointer, HTML, zip, pickle, empty

	IndexJSON    ID = "IDX-001"
	ShardMissing ID = "IDX-002"
	NotInShard   ID = "IDX-003" // the index places a tensor in a shard that lacks it
	IndexPath    ID = "IDX-004" // a shard path that leaves the directory
	StaleCopy    ID = "IDX-005" // a copy of a tensor that the index does not name (a finding)

	TorchContainer ID = "PT-001"
	Pickle         ID = "PT-002"
	UnsafeGlobal   ID = "PT-003"
	TorchClass     ID = "PT-004" // a class or tensor kind that is not read
	TorchGeometry  ID = "PT-005" // storage or view geometry
	TorchLimit     ID = "PT-006"

	Truncated ID = "IO-001" // the file became shorter while it was open
)

// The classes of error that a caller tells apart with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrCorrupt     = errors.New("corrupt")
	ErrUnsupported = errors.New("unsupported")
	ErrUnsafe      = errors.New("unsafe")
	ErrBudget      = errors.New("over budget")
	ErrTruncated   = errors.New("truncated")
	ErrClosed      = errors.New("closed")
	ErrLeased      = errors.New("leases still open")
	ErrLimit       = errors.New("limit exceeded")
)

// Class is the sentinel that an error with this rule matches.
func (id ID) Class() error {
	switch id {
	case QuantType, WeightFormat, HeaderDType, TorchClass:
		return ErrUnsupported
	case UnsafeGlobal:
		return ErrUnsafe
	case TorchLimit:
		return ErrLimit
	case Truncated:
		return ErrTruncated
	case ShardMissing:
		return ErrNotFound
	case "":
		return nil
	}
	return ErrCorrupt
}

// Error says where a rule is broken: in which file, tensor and byte.
type Error struct {
	Path   string // the file, as it was opened; "" while the reader has only bytes
	Tensor string // exact name; "" when the whole file is meant
	Rule   ID     // "" for errors of use, such as an unknown name
	Offset int64  // absolute byte offset in Path, or -1 when no single byte is meant
	Err    error  // the cause
}

// New makes an Error without a place: At, For and Locate fill in what the
// caller knows.
func New(id ID, format string, args ...any) *Error {
	return &Error{Rule: id, Offset: -1, Err: fmt.Errorf(format, args...)}
}

// At returns e with its byte offset set.
func (e *Error) At(off int64) *Error { e.Offset = off; return e }

// For returns e with its tensor set.
func (e *Error) For(name string) *Error { e.Tensor = name; return e }

func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	if e.Tensor != "" {
		b.WriteString(strconv.Quote(e.Tensor))
		b.WriteString(": ")
	}
	if e.Rule != "" {
		b.WriteString(string(e.Rule))
		b.WriteString(": ")
	}
	b.WriteString(e.Err.Error())
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the class of e's rule.
func (e *Error) Is(target error) bool {
	c := e.Rule.Class()
	return c != nil && c == target
}

// Locate returns err with the path and tensor filled in where it is an *Error
// that lacks them; the error itself is copied, never changed. Other errors are
// wrapped.
func Locate(err error, path, tensor string) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Path: path, Tensor: tensor, Offset: -1, Err: err}
	}
	c := *e
	if c.Path == "" {
		c.Path = path
	}
	if c.Tensor == "" {
		c.Tensor = tensor
	}
	return &c
}
