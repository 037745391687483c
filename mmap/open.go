package mmap

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	mmapgo "github.com/edsrzf/mmap-go"

	"nibble/internal/rule"
)

// Open opens the regular file at path, following symbolic links. The File has
// one reference, the caller's, and a mapping of its own. Anything but a regular
// file is an error, and is not opened: a FIFO would block, a device might act.
// Errors are *rule.Error with the path; errors.Is finds fs.ErrNotExist and its
// like in them.
func (s *Files) Open(path string, b Backend) (*File, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, located(path, -1, rule.ErrClosed)
	}
	file, info, err := s.openRegular(path)
	if err != nil {
		return nil, located(path, -1, err)
	}
	f := &File{path: path, size: info.Size(), info: info, files: s}
	f.refs.Store(1)
	if err := f.attach(file, b); err != nil {
		file.Close()
		return nil, f.fail(-1, err)
	}
	d, err := s.insert(f, file)
	if err != nil {
		return nil, f.fail(-1, errors.Join(err, f.unmap()))
	}
	s.release(d)
	return f, nil
}

// openRegular opens the regular file at path and says what it opened.
func (s *Files) openRegular(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, dangling(path, err)
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	return s.openChecked(path)
}

// openChecked is the second half of openRegular. Something else may have taken
// the name since the first: it opens without waiting, and looks again.
func (s *Files) openChecked(path string) (*os.File, os.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	for err != nil && s.makeRoom(err) {
		file, err = os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// regular is an error that says what the file is, unless it is a regular file.
func regular(info fs.FileInfo) error {
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "is a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "is a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "is a socket"
	case mode&fs.ModeDevice != 0:
		kind = "is a device"
	}
	return errors.New(kind)
}

// dangling adds the target to err if path is a symbolic link: that one is
// missing, not the path that the caller sees in the directory.
func dangling(path string, err error) error {
	target, linkErr := os.Readlink(path)
	if linkErr != nil {
		return err
	}
	if named, ok := err.(*fs.PathError); ok {
		err = named.Err
	}
	return fmt.Errorf("symbolic link to %s: %w", target, err)
}

// attach maps file, or notes why it is not mapped.
func (f *File) attach(file *os.File, b Backend) error {
	switch {
	case f.size == 0:
		f.why = "empty file" // a mapping of length zero is an error everywhere
		return nil
	case b == Pread:
		f.why = "pread was asked for"
		return nil
	case b == Auto:
		if kind := networkFS(file); kind != "" {
			f.why = "on a network file system (" + kind + ")"
			return nil
		}
	}
	data, err := mapFile(file, f.size)
	switch {
	case err == nil:
		f.data = data
	case b == Auto:
		f.why = err.Error()
	default:
		return err
	}
	return nil
}

// mapFile maps the first size bytes of file, read-only and shared: such a
// mapping takes no memory until it is touched and counts against no limit of
// committed memory.
func mapFile(file *os.File, size int64) (mmapgo.MMap, error) {
	if size > math.MaxInt {
		return nil, fmt.Errorf("cannot be mapped: %d bytes are more than this system can address", size)
	}
	data, err := mmapgo.MapRegion(file, int(size), mmapgo.RDONLY, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be mapped: %w", err)
	}
	return data, nil
}
