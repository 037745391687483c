package mmap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nibble/internal/rule"
)

// NetworkName is tested by number: no test machine has all these file systems.
var NetworkName = networkName

// Two goroutines may miss the same descriptor and both open the file; the LRU
// would overwrite one with the other and leak it.
func TestSecondDescriptorIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewFiles(0)
	f, err := s.Open(path, Pread)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.acquire(f)
	if err != nil {
		t.Fatal(err)
	}
	late, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.insert(f, late)
	if err != nil || second != first {
		t.Errorf("got another descriptor, or error %v", err)
	}
	if err := late.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("the late descriptor was left open")
	}

	// Both users are pinned, so the release of the file closes nothing yet.
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	for i, d := range []*descriptor{first, second} {
		if _, err := d.ReadAt(make([]byte, 4), 0); err != nil {
			t.Errorf("user %d: %v", i, err)
		}
		s.release(d)
	}
	if err := first.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("the last user left the descriptor open")
	}
}

// The name may become a FIFO's between the question and the opening; opening
// one waits for a writer, forever.
func TestFIFOThatTookTheName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := NewFiles(0).openChecked(path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "named pipe") {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("blocked")
	}
}

// A disk that fails cannot be had in a test. A file of sysfs stands in: nothing
// about it changes, and yet its last bytes cannot be read.
func TestFaultIsExplainedByReading(t *testing.T) {
	const path = "/sys/kernel/mm/transparent_hugepage/enabled"
	f, err := NewFiles(0).Open(path, Pread)
	if err != nil {
		t.Skip(err)
	}
	defer f.Release()
	var e *rule.Error
	err = f.faulted(f.Size() - 1)
	if !errors.As(err, &e) || e.Rule != rule.Truncated || e.Offset != f.Size()-1 || e.Path != path {
		t.Errorf("bytes that cannot be read: %v", err)
	}
	if err := f.faulted(0); !errors.Is(err, errWhole) {
		t.Errorf("bytes that can be read: %v", err)
	}
}
