// Package mmap gives access to the bytes of one checkpoint file: it is opened,
// mapped once, counted by reference, read, advised and guarded against faults.
//
// A mapped file is read through [File.Window], which hands out slices of the
// mapping itself. Where a file cannot be mapped, or is better not mapped, the
// same call reads into the caller's buffer.
//
// # What a mapping does when its file shrinks
//
// Touching a page that the file no longer has raises a fault: SIGBUS on Unix.
// [Guard] turns it into an error. But the last page that the file still has is
// filled with zeros after the end, and reading those raises nothing. So whoever
// reads a mapping runs under Guard and then asks [File.Check] whether the bytes
// were there, before the result is handed out. A slice of a mapping given to a
// system call raises no fault either: the call fails, see [Fault].
//
// Bytes rewritten in place are not detected.
package mmap

import (
	"fmt"
	"os"
)

// Backend says how the bytes of a file are reached.
type Backend uint8

const (
	// Auto maps the file, and falls back to Pread where the system cannot map
	// it, where it is larger than the address space, and on network file
	// systems, where a lost connection would become a fault.
	Auto Backend = iota
	// Map maps the file or fails. An empty file has no mapping and is no error.
	Map
	// Pread reads into the caller's buffers and maps nothing.
	Pread
)

func (b Backend) String() string {
	switch b {
	case Auto:
		return "auto"
	case Map:
		return "mmap"
	case Pread:
		return "pread"
	}
	return fmt.Sprintf("Backend(%d)", uint8(b))
}

// pageSize is the unit of mapping and advice, in bytes. It is not 4096
// everywhere: arm64 has systems with 16 and 64 KiB.
var pageSize = int64(os.Getpagesize())
