package cache

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"nibble/internal/testkit"
)

// mapped reports whether b is still backed by a mapping: advice on a hole fails.
func mapped(b []byte) bool {
	return !errors.Is(unix.Madvise(b, unix.MADV_NORMAL), unix.ENOMEM)
}

// What leaves the account leaves the process.
func TestUnmapping(t *testing.T) {
	if testkit.Emulated() {
		t.Skip("an emulator takes advice on holes")
	}
	c := New[int](Options{Budget: 1000 * kib})
	large := mustAcquire(t, c, 1, 2000*kib)
	mem := large.Bytes()
	if !mapped(mem) {
		t.Fatal("a leased output is not mapped")
	}
	large.Release()
	if mapped(mem) {
		t.Error("an output above the budget is still mapped after its release")
	}
	for name, unmap := range map[string]func(*Cache[int]){
		"SetBudget": func(c *Cache[int]) { c.SetBudget(10) },
		"Drop":      func(c *Cache[int]) { c.Drop(everything); c.SetBudget(10) },
		"Close":     (*Cache[int]).Close,
	} {
		c := New[int](Options{Budget: 1000 * kib})
		l := mustAcquire(t, c, 2, 500*kib)
		mem := l.Bytes()
		l.Release()
		if !mapped(mem) {
			t.Errorf("%s: an idle output is not mapped", name)
		}
		unmap(c)
		if mapped(mem) {
			t.Errorf("%s: an output that went is still mapped", name)
		}
		c.Close()
	}
	c.Close()
}

// Ranges of a large output begin at huge pages, so that no two workers share
// one, whatever its size.
func TestLargeOutputsBeginAtHugePages(t *testing.T) {
	for _, n := range []int{hugeSize, 9 << 20, 45<<20 + 64<<10, 64<<20 + 4096} {
		b, err := mapAnon(n)
		if err != nil {
			t.Fatal(err)
		}
		if off := toHugePage(b); off != 0 || len(b) != n {
			t.Errorf("%d bytes: %d, %d bytes before a huge page", n, len(b), off)
		}
		b[0], b[n-1] = 1, 1
		unmapAnon(b)
		if !testkit.Emulated() && mapped(b) {
			t.Errorf("%d bytes are still mapped", n)
		}
	}
}
