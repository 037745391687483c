package settings

import (
	"errors"
	"testing"
)

func TestParseSize(t *testing.T) {
	eight := func() (uint64, error) { return 8 << 30, nil }
	for in, want := range map[string]int64{
		"4GiB": 4 << 30, "64MiB": 64 << 20, "64 KiB": 64 << 10, "1.5MiB": 3 << 19,
		"1GB": 1e9, "0": 0, "1048576": 1 << 20, "25%": 2 << 30, "auto": 2 << 30,
		"0%": 0, "100%": 8 << 30, "12.5%": 1 << 30, " 50% ": 4 << 30,
	} {
		if got, err := ParseSize(in, eight); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "4 bananas", "101%", "-5%", "NaN%", "%", "GiB", "16EiB"} {
		if got, err := ParseSize(in, eight); err == nil {
			t.Errorf("%q: got %d, want an error", in, got)
		}
	}
}

// A size that needs no percentage must not depend on finding out the memory.
func TestParseSizeWithoutMemory(t *testing.T) {
	unknown := func() (uint64, error) { return 0, errors.New("no cgroup") }
	if got, err := ParseSize("1KiB", unknown); err != nil || got != 1024 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := ParseSize("auto", unknown); err == nil {
		t.Error("auto of unknown memory: want an error")
	}
}
