package safetensors

import (
	"path/filepath"
	"strings"
	"testing"

	"nibble/internal/rule"
)

func TestSniff(t *testing.T) {
	tar := make([]byte, 512)
	copy(tar, "sys_info")
	copy(tar[257:], "ustar\x0000")
	for _, c := range []struct {
		name   string
		prefix string
		size   int64
		want   Kind
	}{
		{"empty", "", 0, Empty},
		{"one byte", "{", 1, Unknown},
		{"safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}", 10, Safetensors},
		{"header beyond the end", "\x03\x00\x00\x00\x00\x00\x00\x00{}", 10, Safetensors},
		{"header length that spells PROTO 2", "\x80\x02\x00\x00\x00\x00\x00\x00{", 9, Safetensors},
		{"header over the limit", "\x01\xe1\xf5\x05\x00\x00\x00\x00{}", 1 << 40, Unknown},
		{"header length that spells PK", "PK\x03\x04\x00\x00\x00\x00{", 1 << 40, Safetensors},
		{"zip", "PK\x03\x04\x00\x00\x08\x08", 100, Zip},
		{"empty zip", "PK\x05\x06\x00\x00", 22, Zip},
		{"half a magic", "PK", 2, Unknown},
		{"pickle 2", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 100, Pickle},
		{"pickle 4", "\x80\x04\x95\x0d", 100, Pickle},
		{"pickle 255", "\x80\xff}q", 100, Pickle},
		{"torch's magic, protocol 1", "L119547037146038801333356L\n.", 100, Pickle},
		{"pickle of a GLOBAL", "c__builtin__\neval\n", 100, Pickle},
		{"a line that begins with c", "cannot read this\n", 17, Unknown},
		{"tar", string(tar), 10240, Tar},
		{"tar with a name like a GLOBAL", "c" + string(tar[1:]), 10240, Tar},
		{"LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", 64, LFSPointer},
		{"page", "<!DOCTYPE html><html>", 21, HTML},
		{"page in lower case after white space", "\ufeff\r\n <html lang=en>", 20, HTML},
		{"error of a bucket", `<?xml version="1.0"?><Error>`, 28, HTML},
		{"text", "not found", 9, Unknown},
		{"PNG", "\x89PNG\r\n\x1a\n", 8, Unknown},
	} {
		if got := Sniff([]byte(c.prefix), c.size); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSniffGolden sniffs every valid file of the vectors by content alone.
func TestSniffGolden(t *testing.T) {
	for pattern, want := range map[string]Kind{"st4/*.safetensors": Safetensors, "pt/*legacy*.bin": Pickle, "pt/*.pt": Zip} {
		files, err := filepath.Glob(filepath.Join(golden, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range files {
			file := readFile(t, path)
			if got := Sniff(file[:min(len(file), SniffLen)], int64(len(file))); got != want {
				t.Errorf("%s: got %v, want %v", path, got, want)
			}
		}
	}
}

// TestNotSafetensors reads files of other kinds: the message says what to do.
func TestNotSafetensors(t *testing.T) {
	for file, words := range map[string]string{
		"": "empty",
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3437\n": "LFS pointer, not the file of 3437 bytes",
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize -1\n":   "LFS pointer, not the file that",
		"version https://git-lfs.github.com/spec/v1\n":                           "LFS pointer, not the file that",
		"<html>":             "HTML page",
		"PK\x03\x04\x14\x00": "zip archive",
		"\x80\x02}":          "pickle",
	} {
		_, err := read([]byte(file))
		wantError(t, err, rule.NotSafetensors, words, "", 0)
	}
	_, err := read([]byte("Access denied\n"))
	wantError(t, err, rule.HeaderLength, "not a safetensors file", "", 0)
}

func TestKindString(t *testing.T) {
	for k := Unknown; k <= Empty; k++ {
		if s := k.String(); s == "" || (k != Unknown) == strings.HasPrefix(s, "unknown") {
			t.Errorf("%d: %q", k, s)
		}
	}
}
