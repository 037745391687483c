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
