//go:build invariants

package cache

import (
	"strings"
	"testing"
)

// mustPanic runs f and checks what it panics with.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v, ok := recover().(string); !ok || !strings.Contains(v, want) {
			t.Errorf("recovered %v, want a panic about %q", v, want)
		}
	}()
	f()
}

func TestParanoidWriteToLease(t *testing.T) {
	c := New[int](Options{Budget: 1 << 20})
	a, b := mustAcquire(t, c, 7, 1000), mustAcquire(t, c, 7, 1000)
	a.Bytes()[500]++
	a.Release()
	mustPanic(t, "the bytes of 7 were written while leased", func() { b.Release() })
}

func TestParanoidPoison(t *testing.T) {
	for _, size := range []int64{1000, 100 * kib} {
		c := New[int](Options{Budget: 1 << 20})
		mustAcquire(t, c, 2, size).Release() // keeps the slab mapped
		l := mustAcquire(t, c, 1, size)
		kept := l.Bytes()
		l.Release()
		c.Drop(func(k int) bool { return k == 1 })
		for i, b := range kept {
			if b != poison {
				t.Fatalf("byte %d of a dropped output of %d still reads %#x", i, size, b)
			}
		}
		atRest(t, c)
	}
}

func TestParanoidLeakReport(t *testing.T) {
	var report string
	c := New[int](Options{Budget: 1 << 20, Log: func(msg string) { report = msg }})
	l := mustAcquire(t, c, 42, 1000)
	mustAcquire(t, c, 43, 1000).Release()
	c.Close()
	if !strings.Contains(report, "lease of 42 is open") || !strings.Contains(report, "TestParanoidLeakReport") || strings.Contains(report, "43") {
		t.Errorf("the report is %q, want key 42 and where it was taken", report)
	}
	l.Release()
}

func TestParanoidAccount(t *testing.T) {
	l := ledger{budget: 10, used: 5, leased: 6}
	mustPanic(t, "broken account", l.check)
}
