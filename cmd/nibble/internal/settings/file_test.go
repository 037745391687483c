package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A settings file is found in the working directory without being asked for,
// which may be a folder that somebody else made.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	large := filepath.Join(dir, "large.yaml")
	for path, text := range map[string]string{good: "workers: 1\n", large: strings.Repeat("# ", maxFile/2) + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := readFile(good); err != nil || string(text) != "workers: 1\n" {
		t.Errorf("%q, %v", text, err)
	}
	for path, want := range map[string]string{large: "more than", dir: "not a regular file", filepath.Join(dir, "none"): "no such file"} {
		if _, err := readFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
