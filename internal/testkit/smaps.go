package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Mapping is what the kernel says about this process's mappings of one file.
type Mapping struct {
	Count int      // how many there are
	Rss   int64    // bytes of them in this process's memory, all together
	Flags []string // VmFlags of the last one, such as rr for random reads
}

// Has reports whether the kernel shows the flag, two letters as in proc(5).
func (m Mapping) Has(flag string) bool { return slices.Contains(m.Flags, flag) }

// Mappings reads the state of the mappings of the file at path out of
// /proc/self/smaps. Rss measures laziness: unlike mincore, which counts what
// the page cache has, it counts the pages that this process touched. The kernel
// maps cached neighbours of a touched page too, unless MADV_RANDOM is set. The
// test is skipped where there is no smaps.
func Mappings(tb testing.TB, path string) Mapping {
	tb.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		tb.Skipf("mappings cannot be inspected here: %v", err)
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := mappings(string(smaps), path)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// mappings is Mappings of the text of an smaps file. Each mapping is a line
// "from-to perms offset dev inode path", then lines "Name: value".
func mappings(smaps, path string) (m Mapping, err error) {
	ours := false
	for line := range strings.Lines(smaps) {
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		switch {
		case strings.Contains(name, "-"):
			ours = strings.HasSuffix(line, " "+path)
			if ours {
				m.Count++
			}
		case ours && name == "Rss":
			var kib int64
			if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
				return m, fmt.Errorf("smaps line %q: %w", line, err)
			}
			m.Rss += kib << 10
		case ours && name == "VmFlags":
			m.Flags = strings.Fields(value)
		}
	}
	return m, nil
}
