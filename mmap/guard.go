package mmap

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"nibble/internal/rule"
)

// Guard runs fn on the calling goroutine and turns a fault in the mapping of
// one of files into an error, with the file's path and the offset touched: a
// rule.Truncated if the file became shorter or changed, otherwise an error of
// no rule, such as the disk's. Every other panic goes on as it was. The caller
// holds a reference to each of files.
//
// Goroutines that fn starts are not guarded: each needs a Guard of its own.
// fn is abandoned at the fault, so only its deferred calls run.
func Guard(files []*File, fn func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if err = faultError(files, r); err == nil {
				panic(r)
			}
		}
	}()
	fn()
	return nil
}

// addressError is what the runtime panics with for a fault, see SetPanicOnFault.
type addressError interface {
	runtime.Error
	Addr() uintptr
}

// faultError is the error that the panic value r stands for, or nil if r is not
// about one of files.
func faultError(files []*File, r any) error {
	if fault, ok := r.(addressError); ok {
		for _, f := range files {
			if off, ok := f.offsetOf(fault.Addr()); ok {
				return f.faulted(off)
			}
		}
		return nil
	}
	if r != faultWithoutAddress() {
		return nil
	}
	for _, f := range files {
		if f.data == nil {
			continue
		}
		if err := f.Check(f.size); errors.Is(err, rule.ErrTruncated) {
			return err
		}
	}
	return nil
}

// faultWithoutAddress is the value that the runtime panics with where the
// system gives no usable address, as emulators of arm64 do. It is the value of
// a nil dereference as well, so it proves nothing by itself.
var faultWithoutAddress = sync.OnceValue(func() (value any) {
	defer func() { value = recover() }()
	var nowhere *int
	return *nowhere
})

// offsetOf is the offset in the file of an address in its mapping.
func (f *File) offsetOf(addr uintptr) (off int64, ok bool) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	distance := addr - base // enormous if addr is below base
	return int64(distance), distance < uintptr(len(f.data))
}

// errWhole is for a fault in a file with which nothing is wrong any more. The
// runtime does not say whether it was a read or a write.
var errWhole = errors.New("fault in the mapping of a file that is whole: a write to it, or a read that failed for a moment")

// faulted says what is wrong with the file after a fault at off.
func (f *File) faulted(off int64) error {
	now, err := f.stat()
	if err == nil {
		err = f.changed(now)
	}
	if err == nil {
		var b [1]byte
		_, err = f.ReadAt(b[:], off)
	}
	var e *rule.Error
	switch {
	case err == nil:
		return f.fail(off, errWhole)
	case errors.As(err, &e):
		return &rule.Error{Path: f.path, Rule: e.Rule, Offset: off, Err: e.Err}
	}
	return f.fail(off, err)
}
