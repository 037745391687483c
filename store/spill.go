package store

import (
	"io"
	"os"
	"sync"
)

// spill keeps what was inflated and has no room in the budget: one temporary
// file for all deflated storages of a shard, since an archive may have more of
// them than a process may have descriptors.
type spill struct {
	mu   sync.Mutex
	file *os.File // nil before first use
	end  int64    // bytes handed out
}

// region is a part of the file: nobody else writes there.
func (s *spill) region(n int64) (*io.SectionReader, io.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		f, err := os.CreateTemp("", "nibble-inflated-")
		if err != nil {
			return nil, nil, err
		}
		// Where what is open can be removed, the file ends with the process,
		// whatever ends that.
		_ = os.Remove(f.Name())
		s.file = f
	}
	off := s.end
	s.end += n
	return io.NewSectionReader(s.file, off, n), io.NewOffsetWriter(s.file, off), nil
}

// close gives the file back. Nobody reads any more.
func (s *spill) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	_ = os.Remove(s.file.Name()) // gone already, where region could remove it
	s.file = nil
	return err
}
