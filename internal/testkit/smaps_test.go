package testkit

import "testing"

// The text is the kernel's documented form (proc(5)), with a second mapping of
// the same file, a longer path that ends alike, and an anonymous mapping.
func TestMappingsParse(t *testing.T) {
	const smaps = `00400000-00401000 r--s 00000000 fe:00 11                               /tmp/a b/data
Size:                  4 kB
Rss:                   4 kB
VmFlags: rd sh mr 
00500000-00502000 r--s 00001000 fe:00 11                               /tmp/a b/data
Rss:                   8 kB
VmFlags: rd sh mr rr 
00600000-00601000 r--s 00000000 fe:00 12                               /other/tmp/a b/data
Rss:                  16 kB
VmFlags: rd sr 
00700000-00701000 rw-p 00000000 00:00 0 
Rss:                  32 kB
VmFlags: rd wr 
`
	m, err := mappings(smaps, "/tmp/a b/data")
	if err != nil {
		t.Fatal(err)
	}
	if m.Count != 2 || m.Rss != 12<<10 || !m.Has("rr") || m.Has("sr") {
		t.Errorf("got %+v", m)
	}
	if m, err = mappings(smaps, "/absent"); err != nil || m.Count != 0 || m.Rss != 0 {
		t.Errorf("a file that is not mapped: %+v, %v", m, err)
	}
}
